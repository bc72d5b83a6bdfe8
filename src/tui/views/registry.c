/* All views, in the order of the number keys: one line each. */
#include "tui/view.h"

/* clang-format off */
#define VIEWS(X) \
    X(home) \
    X(monitor) \
    X(depth) \
    X(stepper) \
    X(signals) \
    X(flops) \
    X(compare) \
    X(timeline) \
    X(pareto) \
    X(generate) \
    X(figures) \
    X(experts) \
    X(machine) \
    X(log) \
    X(help)

#define DECLARE(name) extern const struct view_ops view_##name;
#define ROW(name) &view_##name,

VIEWS(DECLARE)

const struct view_ops *const view_registry[] = { VIEWS(ROW) NULL };
/* clang-format on */
