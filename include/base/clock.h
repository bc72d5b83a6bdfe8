/* Clocks and sleeping. */
#ifndef DS_BASE_CLOCK_H
#define DS_BASE_CLOCK_H
/* Monotonic seconds for rates and durations; wall seconds (Unix) only for display and storage.
 * DEPTHSCOPE_CLOCK=fixed gives 0 for both (screens and goldens). */
double clock_mono(void);
double clock_wall(void);
void clock_sleep(double seconds);
#endif
