/* Loss and accuracy of causal logits that predict membership in the top k. */
#include "routing/membership.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* mean sigmoid(logit) - mean target */
static double mean_miss(const real *logit, const uint8_t *target, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += sigmoid((double)logit[i]) - (target[i] != 0);
    return sum / n;
}

struct membership_loss membership_loss(const real *logit, const uint8_t *target, int n)
{
    struct membership_loss m = {0};
    for (int i = 0; i < n; i++) {
        double x = (double)logit[i];
        m.z += x * x / n;
        if (target)
            m.entropy += ((x > 0 ? x : 0) + log1p(exp(-fabs(x))) - (target[i] ? x : 0)) / n;
    }
    if (target && n > 0)
        m.balance = pow(mean_miss(logit, target, n), 2);
    return m;
}

double membership_total(const struct membership_loss *value, const struct membership_loss *price)
{
    return price->entropy * value->entropy + price->balance * value->balance + price->z * value->z;
}

void membership_bwd(real *dlogit, const struct membership_loss *price, const real *logit,
                    const uint8_t *target, int n)
{
    double miss = target && n > 0 ? mean_miss(logit, target, n) : 0;
    for (int i = 0; i < n; i++) {
        double x = (double)logit[i], p = sigmoid(x), d = 2 * price->z * x;
        if (target)
            d += price->entropy * (p - (target[i] != 0)) + 2 * price->balance * miss * p * (1 - p);
        dlogit[i] += (real)(d / n);
    }
}

void tally_add(struct tally *t, const real *score, double threshold, const uint8_t *target, int n)
{
    for (int i = 0; i < n; i++) {
        int is_positive = (double)score[i] > threshold;
        t->hit += is_positive && target[i];
        t->miss += !is_positive && target[i];
        t->false_alarm += is_positive && !target[i];
    }
    t->all += n;
}

void tally_merge(struct tally *t, const struct tally *other)
{
    t->hit += other->hit;
    t->miss += other->miss;
    t->false_alarm += other->false_alarm;
    t->all += other->all;
}

static double share(double part, double all)
{
    return all > 0 ? part / all : (double)NAN;
}

double tally_predicted_rate(const struct tally *t)
{
    return share(t->hit + t->false_alarm, t->all);
}

double tally_accuracy(const struct tally *t)
{
    return 1 - share(t->miss + t->false_alarm, t->all);
}

double tally_base_rate(const struct tally *t)
{
    double in = share(t->hit + t->miss, t->all);
    return in < 0.5 ? 1 - in : in;
}

double tally_precision(const struct tally *t)
{
    return share(t->hit, t->hit + t->false_alarm);
}

double tally_recall(const struct tally *t)
{
    return share(t->hit, t->hit + t->miss);
}

double tally_f1(const struct tally *t)
{
    return share(2 * t->hit, 2 * t->hit + t->false_alarm + t->miss);
}
