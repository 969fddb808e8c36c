"""The garbage collector: out of the way while a cluster is loaded, and blind to it afterwards.

A full collection over a million rows costs half a second. Loading makes no garbage that forms
cycles, so it is off meanwhile; what was loaded is then frozen, and later collections do not look at
it. This concerns the whole process, so whoever embeds a controller has to ask for it.
"""

import gc

import attrs


@attrs.define
class Collector:
    tuned: bool = False

    def loading(self) -> None:
        if self.tuned:
            gc.disable()

    def loaded(self, *, active: bool) -> None:
        if self.tuned:
            if active:
                gc.freeze()
            else:
                gc.unfreeze()
            gc.enable()
