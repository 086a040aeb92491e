"""AMD GPUs, through AMD SMI. No card of AMD's was ever touched: everything here was tried on a stand-in for the library."""
