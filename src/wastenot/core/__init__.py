"""What everything speaks in: value types, errors, files and documents, processes, words."""
