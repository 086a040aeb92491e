"""What all commands share at the terminal: options, tables, progress and the words of quantities."""
