"""What pages share: figures, tables, the page shell, the theme, the words of numbers. Nothing here computes numbers."""
