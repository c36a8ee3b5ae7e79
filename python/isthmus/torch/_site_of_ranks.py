# SPDX-License-Identifier: Apache-2.0
"""A site whose model is trained by several processes, the ranks of a torch.distributed group: rank 0 has the session,
the other ranks have a `Site` that looks the same and follows."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, Optional

from .. import _abi, _log
from .._errors import ConfigError, Error, PeerError, made_error
from .._native import NativeSession, check_open
from .._session import Site, _Joined, _signals
from .._tables import Section
from ._ranks import Ranks, raise_if_lost
from ._shared import SharedTrained, Wishes


class LeadingSession(NativeSession):
    """Rank 0's: a wish of its own caller is one with the same wish of the other ranks."""

    wishes: "Optional[Wishes]" = None

    def wish(self, what: int) -> None:
        if self.wishes is not None:
            self.wishes.made(what)
        super().wish(what)


class _LeadingSite(_Joined):
    def __init__(self, session: NativeSession, signals: bool, trained: SharedTrained) -> None:
        super().__init__(session, signals)
        self._shared = trained

    def serve(self) -> None:
        try:
            super().serve()
        except BaseException as error:
            self._tell(error)
            raise

    def begin(self, trained: Any, layer_of: "Optional[Callable[[str], int]]") -> "_Joined":
        try:
            return super().begin(trained, layer_of)
        except BaseException as error:
            self._tell(error)
            raise

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            super().__exit__(kind, error, traceback)
        finally:
            self._shared.close()
        raise_if_lost(error)

    def _tell(self, error: BaseException) -> None:
        if not self._session.closed:
            self._session.fail(self._worker, error)  # other sites do not wait until all ranks have heard
        self._shared.failed(error if isinstance(error, Error) else PeerError(_in_words(error)))


class _Following:
    """What a rank that has no session knows of rank 0's."""

    def __init__(self, facts: "dict[str, Any]", wishes: Wishes) -> None:
        self.config = Section(facts["config"])
        self.workers: int = facts["workers"]
        self.first: int = facts["first"]
        self.total_steps: int = facts["steps"]
        self.evaluation_parts: int = facts["evaluation_parts"]
        self.out: Optional[str] = facts["out"]
        self.pid = os.getpid()
        self.closed = False
        self._wishes = wishes

    def check_open(self) -> None:
        check_open(self.pid, self.closed)

    def wish(self, what: int) -> None:
        self.check_open()
        self._wishes.made(what)

    def fail(self, worker: int, error: BaseException, prefix: str = "") -> None:
        """This process ends with its error, and rank 0 with it."""

    def close(self) -> None:
        self.closed = True


class _FollowingSite(Site):
    def __init__(self, session: _Following, trained: SharedTrained, signals: bool) -> None:
        super().__init__(session, 0)  # type: ignore[arg-type]
        self._trained = trained
        self._shared = trained
        self._scope = contextlib.ExitStack()
        self._scope.enter_context(_signals(session, signals))  # type: ignore[arg-type]

    def tell(self, loss: float, tokens: int, grad_norm: float, learning_rate: float, skipped: bool) -> None:
        """Rank 0 tells for all."""

    def average_gradients(self, loss: Any = None, *, tokens: Optional[int] = None, gradients: Any = None) -> bool:
        """As at rank 0, which tells loss and tokens for all."""
        self._check_thread()
        if not self._wants_gradients():
            return True
        self._void = False
        if self._stage == _abi.GRADIENTS:
            self._shared.give_gradients(gradients)
        self.serve()
        if self._shared.mean_came:
            self._shared.mean_came = False
            return True
        self._shared.drop_gradients()
        self._open, self._void = False, True
        return False

    def _samples(self) -> "tuple[int, int, int]":
        raise ConfigError("site.batch and site.validation give the samples of a whole site, and rank 0 alone has them: "
                          "call them there, and give each rank its share by torch.distributed.scatter")

    def serve(self) -> None:
        while True:
            found = self._shared.follow()
            if found is None:
                continue
            self.t, outcome = (found[0] or self.t), found[1]
            self._stage = _abi.APPLY if self._shared.mean_came else self._shared.stage or _abi.TRAIN
            if outcome is not None:
                self._ended = True
                self.outcome = outcome
            return

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._scope.close()
        try:
            super().__exit__(kind, error, traceback)
        finally:
            self._shared.close()
        raise_if_lost(error)


def join_ranks(ranks: Ranks, site: str, make_session: "Callable[[bool], LeadingSession]",
               make_trained: "Callable[[Ranks, Wishes], SharedTrained]", signals: bool,
               layer_of: "Optional[Callable[[str], int]]") -> Site:
    """`isthmus.torch.join` at one rank of several. An error of one rank is raised at every rank. `make_session`: of
    rank 0, which has the run, or one that does not start."""
    try:
        return _joined_ranks(ranks, site, make_session, make_trained, signals, layer_of)
    except BaseException:
        ranks.close()
        raise


def _joined_ranks(ranks: Ranks, site: str, make_session: "Callable[[bool], LeadingSession]",
                  make_trained: "Callable[[Ranks, Wishes], SharedTrained]", signals: bool,
                  layer_of: "Optional[Callable[[str], int]]") -> Site:
    wishes, trained = Wishes(), None
    wrong: "Optional[BaseException]" = None
    try:
        trained = make_trained(ranks, wishes)
    except BaseException as error:
        wrong = error
    said = _agreed(ranks, wrong, {"site": site, "layout": trained.layout() if trained is not None else ""})
    assert trained is not None
    names = sorted({each["site"] for each in said})
    if len(names) > 1:
        raise ConfigError(
            f"join: the ranks of `group` name different sites ({', '.join(names)}), and a group is one site. For a "
            "site at each rank give each a group of its own: "
            "group=[torch.distributed.new_group([r]) for r in range(world_size)][rank]")
    unlike = [str(rank) for rank, each in enumerate(said) if each["layout"] != said[0]["layout"]]
    if unlike:
        raise ConfigError(f"join: the ranks {', '.join(unlike)} of this site have other parameters than rank 0: names, "
                          "shapes and types must be equal (pipelines are not taken)")
    session: "Optional[LeadingSession]" = None
    if ranks.leads:
        try:
            session = make_session(True)
        except BaseException as error:
            wrong = error
    facts = json.loads(ranks.text(json.dumps(_facts(session, wrong)) if ranks.leads else None))
    if facts["error"] is not None:
        if wrong is not None:
            raise wrong
        kind, text, code = facts["error"]
        raise made_error(kind, f"rank 0 of this site: {text}", code, [])
    if facts["placement"] == "ranks" and ranks.size > 1:
        _lay_out_lanes(ranks, trained, session, make_session, facts["config"], layer_of)
    if session is None:
        trained.collect()
        following = _FollowingSite(_Following(facts, wishes), trained, signals)
        try:
            following.serve()
        except BaseException:
            following._scope.close()
            raise
        return following
    try:
        session.wishes, wishes.grant = wishes, super(LeadingSession, session).wish
        trained.collect()
    except BaseException:
        session.close()
        raise
    return _LeadingSite(session, signals, trained).begin(trained, layer_of)


def _lay_out_lanes(ranks: Ranks, trained: SharedTrained, session: "Optional[LeadingSession]",
                   make_session: "Callable[[bool], LeadingSession]", config: "dict[str, Any]",
                   layer_of: "Optional[Callable[[str], int]]") -> None:
    """The other ranks read the configuration too, and hold their shares. An error of one is raised at every rank."""
    own: "Optional[LeadingSession]" = session
    wrong: "Optional[BaseException]" = None
    layers = ""
    try:
        if own is None:
            own = make_session(False)
            _log.drain()
            read = _plain(own.config)
            unlike = sorted(key for key in config["outer"] if read["outer"].get(key) != config["outer"][key])
            if unlike:
                raise ConfigError(f"join: outer.{unlike[0]} = {read['outer'].get(unlike[0])!r} at this rank and "
                                  f"{config['outer'][unlike[0]]!r} at rank 0: with outer.placement = \"ranks\" all "
                                  "ranks read one file with the same overrides")
        layers = trained.layers_out(own, layer_of)
    except BaseException as error:
        wrong = error
    try:
        said = _agreed(ranks, wrong, {"layers": layers})
        other = [str(rank) for rank, each in enumerate(said) if each["layers"] != said[0]["layers"]]
        if other:
            raise ConfigError(f"join: layer_of gives other layers at the ranks {', '.join(other)} of this site than at "
                              "rank 0: with outer.placement = \"ranks\" the ranks share each layer's outer state, so "
                              "give all of them the same layer_of")
    except BaseException:
        if own is not None:
            own.close()
        raise


def _agreed(ranks: Ranks, error: "Optional[BaseException]", facts: "dict[str, Any]") -> "list[dict[str, Any]]":
    """`Ranks.agree`, of any exception of a rank: its own is raised there, and a ConfigError at the others."""
    try:
        return ranks.agree(None if error is None else _told(error), facts)
    except Error:
        if error is not None:
            raise error
        raise


def _told(error: BaseException) -> Error:
    return error if isinstance(error, Error) else ConfigError(f"join: {_in_words(error)}")


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _facts(session: "Optional[LeadingSession]", wrong: "Optional[BaseException]") -> "dict[str, Any]":
    """What rank 0 tells the others of the run."""
    if session is None:
        assert wrong is not None
        error = _told(wrong)
        return {"error": [error.kind, str(error), error.exit_code]}
    out = session.out or session.config.run.get("out")
    return {"error": None, "config": _plain(session.config), "placement": session.placement,
            "workers": session.workers, "first": session.first, "steps": session.total_steps,
            "evaluation_parts": session.evaluation_parts,
            "out": os.path.abspath(os.fsdecode(out)) if out else None}


def _plain(section: Any) -> Any:
    if hasattr(section, "items"):
        return {key: _plain(each) for key, each in section.items()}
    return section
