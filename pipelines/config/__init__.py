"""Configuration: models, files, the commands that messages name."""
