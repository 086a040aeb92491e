"""Plans at work in trainers of other libraries, each imported only by those who use it."""
