"""Plants a fault in Python workers: Python imports this by itself where the folder is on its path."""

import os
from unittest.mock import patch

if os.environ.get("CHAOS_PLANTED") == "publish-repeats":
    patch("pipelines.publishing.slot_writer.what_to_do", lambda *given, **named: "publish").start()
