"""Every route declares its right and reach; nobody gets further than that."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.routing import BaseRoute

from backend import auth, rights
from backend.api import routes as api
from backend.web.routes import routers as pages
from frontend.render import environment


def declared() -> Iterator[str]:
    """Every route of the API and of the pages as ``GET /path``."""
    for prefix, routers in ((api.PREFIX, api.routers()), ("", pages(environment()))):
        for router in routers:
            for route in router.routes:
                yield from named(prefix, route)


def named(prefix: str, route: BaseRoute) -> Iterator[str]:
    path, methods = getattr(route, "path", ""), getattr(route, "methods", None) or ()
    for method in sorted(set(methods) - {"HEAD"}):
        yield f"{method} {prefix}{rights.plain(path)}"


def test_a_route_without_a_declared_right_fails() -> None:
    missing = sorted(set(declared()) - set(rights.TABLE))
    assert not missing, f"name in backend/rights.py the right and reach of: {missing}"


#: What stands at the root, outside of the routers above.
ROOT = {f"GET {path}" for path in ("/docs", "/openapi.json", "/healthz", "/readyz", "/metrics")}


def test_every_declared_right_is_of_a_route_that_is_there_and_known_by_name() -> None:
    assert set(rights.TABLE) - set(declared()) == ROOT
    assert {rule.need for rule in rights.TABLE.values()} <= {*auth.RIGHTS, "open", "ingest"}


def test_who_is_limited_gets_no_further_than_that() -> None:
    for name, rule in rights.TABLE.items():
        assert not rights.beyond(rule, (), ()), name
        assert bool(rights.beyond(rule, ("east",), ())) is (rule.reach == "site"), name
        assert bool(rights.beyond(rule, (), ("atlas",))) is (rule.reach in ("whole", "site")), name
    assert rights.rule_of("GET", "/nobody/named/it") == rights.UNKNOWN
    assert rights.rule_of("HEAD", "/incidents/{number:int}").reach == "project"
