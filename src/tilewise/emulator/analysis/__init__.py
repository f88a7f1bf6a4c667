"""Facts about a kernel, found before it is lowered: control flow, shapes of values, liveness of registers."""
