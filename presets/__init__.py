"""Makes the presets that come with wastenot: python -m presets.make_presets."""
