"""The garbage collector: out of the way while a cluster is loaded, and blind to it afterwards.

A full collection over a million rows costs half a second. Loading makes no garbage that forms
cycles, so it is off meanwhile; what was loaded is then frozen, and later collections do not look at
it. They come seldom too: a handler makes some ten thousand tuples that live until it ends, and to
look through them again every 700 took a sixth of its time. This concerns the whole process, so
whoever embeds a controller has to ask for it.
"""

import gc

import attrs

THRESHOLDS = (50_000, 20, 100)


@attrs.define
class Collector:
    tuned: bool = False
    _before: tuple[int, int, int] = attrs.field(factory=gc.get_threshold)

    def loading(self) -> None:
        if self.tuned:
            gc.disable()

    def loaded(self, *, active: bool) -> None:
        if self.tuned:
            if active:
                gc.freeze()
                gc.set_threshold(*THRESHOLDS)
            else:
                gc.unfreeze()
                gc.set_threshold(*self._before)
            gc.enable()
