/* Hartigan and Hartigan's dip test of unimodality (Annals of Statistics 13, 1985). */
#ifndef DS_FIGURES_DIP_H
#define DS_FIGURES_DIP_H

#include <stddef.h>

#include "base/err.h"

/* Distance of a sorted sample's distribution from the nearest unimodal one; DS_EMEM. */
int dip_statistic(const double *sorted, size_t n, double *dip, struct err *e) DS_CHECK;
/* p value: the share of `rounds` uniform samples of size n whose dip is at least this large. */
int dip_p(double dip, size_t n, int rounds, unsigned long long seed, double *p,
          struct err *e) DS_CHECK;

#endif
