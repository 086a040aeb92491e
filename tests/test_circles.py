"""No module needs another that needs it, be it when it is imported or later; only names of types may go round."""

from graphlib import TopologicalSorter

import grimp


def test_imports_do_not_go_in_circles():
    graph = grimp.build_graph("wastenot", exclude_type_checking_imports=True)
    TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in graph.modules}).prepare()
