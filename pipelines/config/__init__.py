"""Configuration: models, the loader of files, the commands that messages name."""
