/* Locates the cgroups of a process, version 2 or 1, and finds their tightest limit. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

/* Not through fs.h: it counts calls for fault injection, and the count must not depend on the
 * machine. */
int cgroup_line(char *line, int size, const char *dir, const char *name)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "re");
    int ok = f && fgets(line, size, f);
    if (f)
        fclose(f);
    return ok;
}

/* The tightest limit of a group and its ancestors.  In a container the path may name groups that
 * are not mounted; the walk then still ends at the mount point. */
static double walk(const char *mount, const char *group, cgroup_limit *limit)
{
    char dir[4096];
    double least = 0;
    if (snprintf(dir, sizeof dir, "%s%s", mount, group) >= (int)sizeof dir)
        return 0;
    for (size_t floor_len = strlen(mount);;) {
        double here = limit(dir);
        if (here > 0 && (least == 0 || here < least))
            least = here;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < floor_len)
            return least;
        *slash = '\0';
    }
}

static double least_of(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* One line of the list: "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1). */
static double line_limit(const char *mount, char *line, const char *controller, cgroup_limit *v2,
                         cgroup_limit *v1)
{
    char root[4096];
    char *names = strchr(line, ':');
    char *group = names ? strchr(names + 1, ':') : NULL;
    if (!group)
        return 0;
    *group++ = '\0';
    names++;
    if (strstr(group, ".."))
        group = group + strlen(group);
    if (*names == '\0')
        return walk(mount, group, v2);
    size_t n = strlen(controller);
    for (const char *p = names; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ','))
        if (strcspn(p, ",") == n && memcmp(p, controller, n) == 0 &&
            snprintf(root, sizeof root, "%s/%s", mount, controller) < (int)sizeof root)
            return walk(root, group, v1);
    return 0;
}

double cgroup_min(const char *mount, const char *self, const char *controller, cgroup_limit *v2,
                  cgroup_limit *v1)
{
    char line[4096];
    double least = 0;
    FILE *f = fopen(self, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        least = least_of(least, line_limit(mount, line, controller, v2, v1));
    }
    if (f)
        fclose(f);
    return least;
}
