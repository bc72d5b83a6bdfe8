/* All views, in the order of the number keys. */
#include "tui/view.h"

/* clang-format off */
const struct view_ops *const view_registry[] = {
    &view_home,
    &view_monitor,
    &view_depth,
    &view_stepper,
    &view_signals,
    &view_flops,
    &view_compare,
    &view_timeline,
    &view_pareto,
    &view_generate,
    &view_log,
    &view_help,
    NULL,
};
/* clang-format on */
