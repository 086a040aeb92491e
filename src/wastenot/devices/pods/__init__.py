"""``wastenot-pods``: wastenotd sets the clocks that the annotated pods of a Kubernetes node ask for."""
