"""What all verbs share at the terminal: options, tables, progress and the words of quantities."""
