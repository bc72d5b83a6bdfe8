/* Which layers have an early-exit loss in a training step, and their weights. */
#include "training/exit_loss.h"

#include <string.h>

#include "base/rng.h"

static int count_exits(const struct model_config *c)
{
    int n = 0;
    for (int l = 0; l < model_config_depth(c); l++)
        n += exit_is_candidate(c, l);
    return n;
}

/* e(k) of K exits. */
static double scale_of(const struct train_options *o, int k, int K)
{
    int is_last = k == K - 1;
    double below = is_last ? k - 1 : k; /* the sum over 0..below */
    if (o->exit_weights == EXIT_WEIGHTS_EQUAL)
        return is_last ? 1 : o->exit_scale;
    return (is_last ? k : 0) + o->exit_scale * below * (below + 1) / 2;
}

/* First exit with e(k) > 0; K-1 when none before the last one has. */
static int first_exit(const struct train_options *o, int K)
{
    int k = 0;
    while (k < K - 1 && scale_of(o, k, K) <= 0)
        k++;
    return k;
}

static int drawn_exit(const struct train_options *o, int K, uint64_t seed, int64_t step)
{
    int first = first_exit(o, K);
    return first + (int)(rng_at(seed, RNG_EXIT, (uint64_t)step, 0, 0) * (K - 1 - first));
}

/* R of a rotation. */
static int64_t period_of(const struct train_options *o, int K)
{
    return o->exit_every > 0 ? o->exit_every : K > 2 ? K - 1 : 1;
}

/* C(t,k) */
static int is_on(const struct train_options *o, int k, int K, uint64_t seed, int64_t step)
{
    if (k == K - 1)
        return 1;
    switch ((enum exit_loss)o->exit_loss) {
    case EXIT_LOSS_NONE: break;
    case EXIT_LOSS_ALL: return 1;
    case EXIT_LOSS_ROTATE: return k % period_of(o, K) == step % period_of(o, K);
    case EXIT_LOSS_GRADUAL: /* in double: T may be 1e15 */
        return (double)(K - 1 - k) * (double)o->steps <= 2.0 * K * (double)(step - 1);
    case EXIT_LOSS_RANDOM: return k == drawn_exit(o, K, seed, step);
    }
    return 0;
}

int exit_loss_weights(real *weight, const struct train_config *c, int64_t step)
{
    int L = model_config_depth(&c->model), K = count_exits(&c->model), n = 0;
    double sum = 0;
    memset(weight, 0, (size_t)(L + 1) * sizeof *weight);
    for (int l = 0, k = 0; l < L; l++) {
        if (!exit_is_candidate(&c->model, l))
            continue;
        double e =
            is_on(&c->train, k, K, (uint64_t)c->run.seed, step) ? scale_of(&c->train, k, K) : 0;
        weight[l + 1] = (real)e;
        sum += e;
        n += e > 0 && l < L - 1;
        k++;
    }
    for (int l = 1; l < L && n > 0; l++)
        weight[l] = (real)((double)weight[l] / sum);
    weight[L] = n > 0 ? (real)((double)weight[L] / sum) : 1;
    return n;
}

double exit_loss_mean(const struct train_options *o, const struct model_config *c, int64_t step)
{
    int K = count_exits(c);
    int64_t period = period_of(o, K), n = 0;
    if (o->exit_loss == EXIT_LOSS_NONE)
        return 0;
    for (int64_t t = step; t < step + period; t++)
        for (int k = first_exit(o, K); k < K - 1; k++)
            n += is_on(o, k, K, 0, t);
    return (double)n / (double)period;
}

int exit_loss_check(const struct train_config *c, struct err *e)
{
    static const char *const name[] = {"none", "all", "rotate", "gradual", "random"};
    const struct train_options *o = &c->train;
    int K = count_exits(&c->model), needed = o->exit_weights == EXIT_WEIGHTS_EQUAL ? 2 : 3;
    if (o->exit_loss == EXIT_LOSS_NONE || K >= needed)
        return 0;
    if (c->model.loop > 1 && c->model.loop_last > 0)
        return err_set(e, DS_EUSAGE,
                       "train.exit_loss=%s: unsupported with model.loop_last, whose blocks change "
                       "what an exit predicts",
                       name[o->exit_loss]);
    return err_set(e, DS_ERANGE,
                   "train.exit_loss=%s: needs at least %d layers where an exit can be, "
                   "model.layers=%lld has %d%s",
                   name[o->exit_loss], needed, (long long)c->model.layers, K,
                   needed == 3 ? " (train.exit_weights=rising gives the first one no weight)" : "");
}
