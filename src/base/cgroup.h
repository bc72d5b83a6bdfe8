/* Limits of cgroups. */
#ifndef DS_BASE_CGROUP_H
#define DS_BASE_CGROUP_H

/* The limit of one group, from the files in its directory; 0 = no limit, or not readable. */
typedef double cgroup_limit(const char *dir);
/* The tightest limit of the process's group and its ancestors; 0 when there is none.  `mount` is
 * the cgroup mount ("/sys/fs/cgroup"), `self` the list of the process's cgroups
 * ("/proc/self/cgroup"), `controller` the v1 name ("cpu"). */
double cgroup_min(const char *mount, const char *self, const char *controller, cgroup_limit *v2,
                  cgroup_limit *v1);
/* The first line of dir/name; 0 when there is none. */
int cgroup_line(char *line, int size, const char *dir, const char *name);

#endif
