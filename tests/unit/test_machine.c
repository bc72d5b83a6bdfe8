/* Samples of the machine: every value of the stand-in for NVIDIA's library, of amdgpu's files, of
 * nvidia-smi and of /proc, what is missing or absurd, and the way through a record. */
#include "t.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/machine_parts.h"
#include "io/runview.h"
#include "io/system.h"

static char path[4096];

/* Of this test. */
static const char *folder(void)
{
    static char dir[1024];
    if (!dir[0])
        str_copy(dir, sizeof dir, t_tmpdir());
    return dir;
}

static const char *below(const char *dir, const char *name)
{
    struct err e = {0};
    t_ok(fs_join(path, sizeof path, dir, name, &e), &e);
    return path;
}

static void put(const char *dir, const char *name, const char *text)
{
    struct err e = {0};
    char parent[4096];
    str_copy(parent, sizeof parent, below(dir, name));
    *strrchr(parent, '/') = '\0';
    t_ok(fs_mkdirs(parent, &e), &e);
    t_ok(fs_write_file(below(dir, name), text, strlen(text), &e), &e);
}

/* No GPU but those of the stand-in library; /proc and /sys are folders of the test. */
static void use_library(const char *library, const char *values)
{
    const char *build = getenv("BUILD_DIR"), *dir = folder();
    char file[4096];
    snprintf(file, sizeof file, "%s/tests/unit/%s", build ? build : "build/release", library);
    t_truef(library[0] == '/' || fs_exists(file), "%s: missing; run make programs", file);
    put(dir, "values", values);
    setenv("NVML_STUB", below(dir, "values"), 1);
    setenv("DEPTHSCOPE_NVML", library[0] == '/' ? library : file, 1);
    setenv("DEPTHSCOPE_SYSROOT", dir, 1);
    setenv("PATH", dir, 1); /* the kit removes the folder by rm */
    (void)!symlink("/bin/rm", below(dir, "rm"));
}

static struct machine_sample sample; /* of the last take() */
static void take(void)
{
    struct machine *m = machine_open(folder());
    t_true(m != NULL);
    machine_sample(m, &sample);
    machine_close(m);
}

static const char two[] =
    "count 2\n"
    "0 name NVIDIA H100 80GB HBM3\n0 use 87\n0 memory 40000000000 85899345920 600000000\n"
    "0 power 612345\n0 limit 700000\n0 temperature 64\n0 sm 1755\n0 clock_memory 2619\n"
    "0 reasons 0x24\n0 process 11 1000000\n0 process 4242 39000000000\n"
    "1 name NVIDIA A100-SXM4-40GB\n1 use 0\n1 memory 0 42949672960 0\n1 power 55000\n"
    "1 limit 400000\n1 temperature 31\n1 sm 210\n1 clock_memory 1215\n1 reasons 1\n";

static void check_first(const struct machine_gpu *g)
{
    t_str(g->name, "NVIDIA H100 80GB HBM3");
    t_str(g->source, "nvml");
    t_eq(g->is_lost, 0);
    t_near(g->use, 0.87, 1e-12);
    t_near(g->memory_used, 40e9, 0);
    t_near(g->memory_total, 85899345920.0, 0);
    t_near(g->power, 612.345, 1e-9);
    t_near(g->power_limit, 700, 1e-9);
    t_near(g->temperature, 64, 0);
    t_near(g->clock_sm, 1755, 0);
    t_near(g->clock_memory, 2619, 0);
    t_eq(g->has_throttle, 1);
    t_eq(g->throttle, 0x24);
    t_str(machine_throttle[2], "power");
    t_str(machine_throttle[5], "thermal");
    t_eq(g->has_processes, 1);
    t_eq(g->processes, 2);
    t_eq(g->process[0].pid, 4242);
    t_near(g->process[0].memory, 39e9, 0);
    t_str(g->process[0].name, "python3");
    t_eq(g->process[1].pid, 11);
    t_str(g->process[1].name, "");
}

T(every_value_of_the_library_is_sampled)
{
    use_library("libnvml.so", two);
    put(folder(), "proc/4242/comm", "python3\n");
    take();
    t_eq(sample.gpus, 2);
    check_first(&sample.gpu[0]);
    t_str(sample.gpu[1].name, "NVIDIA A100-SXM4-40GB");
    t_near(sample.gpu[1].use, 0, 0);
    t_near(sample.gpu[1].memory_used, 0, 0);
    t_eq(sample.gpu[1].throttle, 1);
    t_eq(sample.gpu[1].has_processes, 1);
    t_eq(sample.gpu[1].processes, 0);
}

T(a_function_that_the_library_lacks_leaves_its_value_unknown)
{
    use_library("libnvml_old.so", two);
    take();
    const struct machine_gpu *g = &sample.gpu[0];
    t_eq(sample.gpus, 2);
    t_near(g->use, 0.87, 1e-12);
    t_near(g->memory_used, 40.6e9, 0); /* the first version counts what the driver reserves */
    t_near(g->temperature, 64, 0);
    t_true(isnan(g->power) && isnan(g->power_limit));
    t_eq(g->has_throttle, 0);
    t_eq(g->has_processes, 0);
}

T(what_a_gpu_does_not_support_is_unknown)
{
    use_library("libnvml.so", "count 1\n0 name X\n0 no_processes 1\n");
    take();
    const struct machine_gpu *g = &sample.gpu[0];
    t_eq(sample.gpus, 1);
    t_true(isnan(g->use) && isnan(g->memory_used) && isnan(g->memory_total) && isnan(g->power) &&
           isnan(g->power_limit) && isnan(g->temperature) && isnan(g->clock_sm) &&
           isnan(g->clock_memory));
    t_eq(g->is_lost + g->has_throttle + g->has_processes, 0);
}

T(a_gpu_that_is_lost_stays_in_the_list)
{
    char more[2000];
    use_library("libnvml.so", two);
    struct machine *m = machine_open(".");
    machine_sample(m, &sample);
    snprintf(more, sizeof more, "%s0 lost 1\n1 gone 1\n", two);
    put(folder(), "values", more);
    machine_sample(m, &sample);
    machine_close(m);
    t_eq(sample.gpus, 2);
    for (int i = 0; i < 2; i++) {
        t_eq(sample.gpu[i].is_lost, 1);
        t_true(isnan(sample.gpu[i].use) && isnan(sample.gpu[i].temperature));
    }
    t_str(sample.gpu[0].name, "NVIDIA H100 80GB HBM3");
    t_str(sample.gpu[1].name, "NVIDIA A100-SXM4-40GB");
}

T(absurd_values_and_names_are_not_believed)
{
    use_library("libnvml.so",
                "count 1\n0 name A\x1b[31m\xff\xc3(B\x07\n0 use 4294967295\n"
                "0 memory 18446744073709551615 18446744073709551615 0\n0 power 4294967295\n"
                "0 limit 4000000000\n0 temperature 4294967295\n0 sm 4294967295\n"
                "0 clock_memory 4000000000\n0 process 7 18446744073709551615\n");
    take();
    const struct machine_gpu *g = &sample.gpu[0];
    t_str(g->name, "A?[31m?"
                   "?(B?");
    t_true(isnan(g->use) && isnan(g->memory_used) && isnan(g->memory_total) && isnan(g->power) &&
           isnan(g->power_limit) && isnan(g->temperature) && isnan(g->clock_sm) &&
           isnan(g->clock_memory));
    t_eq(g->processes, 1);
    t_true(isnan(g->process[0].memory));
}

T(more_gpus_and_processes_than_fit_are_counted)
{
    struct str values = {0};
    str_add(&values, "count 20\n");
    for (int i = 0; i < 20; i++)
        str_addf(&values, "0 process %d %d\n", 100 + i, 1000 * (i * 7 % 20));
    use_library("libnvml.so", str_text(&values));
    take();
    str_release(&values);
    t_eq(sample.gpus, MACHINE_GPUS);
    t_eq(sample.gpus_more, 20 - MACHINE_GPUS);
    const struct machine_gpu *g = &sample.gpu[0];
    t_eq(g->processes, MACHINE_PROCESSES);
    t_eq(g->processes_more, 20 - MACHINE_PROCESSES);
    for (int i = 0; i < MACHINE_PROCESSES; i++) /* those with most memory */
        t_near(g->process[i].memory, 1000 * (19 - i), 0);
}

T(without_a_library_or_with_one_that_finds_no_driver_there_is_no_gpu)
{
    use_library("/nonexistent/library.so", "");
    take();
    t_eq(sample.gpus, 0);
    use_library("libnvml.so", "init 9\ncount 2\n");
    take();
    t_eq(sample.gpus, 0);
}

/* ---- nvidia-smi ---- */

static void put_program(const char *text)
{
    put(folder(), "nvidia-smi", text);
    t_eq(chmod(below(folder(), "nvidia-smi"), 0755), 0);
}

T(nvidia_smi_serves_where_the_library_is_missing)
{
    use_library("/nonexistent/library.so", "");
    put_program("#!/bin/sh\n"
                "case $1 in *reasons*) ;; *) exit 3 ;; esac\n"
                "echo 'NVIDIA H100, PCIe, 87, 38147, 81920, 612.30, 700.00, 64, 1755, 2619, "
                "0x0000000000000024'\n"
                "echo 'Tesla K80, [N/A], 0, 11441, [Not Supported], [N/A], 31, 324, 324, "
                "[Not Supported]'\n"
                "echo 'Tesla T4, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU "
                "is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]'\n"
                "echo junk\n");
    take();
    t_eq(sample.gpus, 3);
    const struct machine_gpu *g = sample.gpu;
    t_str(g[0].name, "NVIDIA H100, PCIe");
    t_str(g[0].source, "nvidia-smi");
    t_near(g[0].use, 0.87, 1e-12);
    t_near(g[0].memory_used, 38147.0 * 1048576, 0);
    t_near(g[0].memory_total, 81920.0 * 1048576, 0);
    t_near(g[0].power, 612.3, 1e-9);
    t_near(g[0].power_limit, 700, 0);
    t_near(g[0].temperature, 64, 0);
    t_near(g[0].clock_sm, 1755, 0);
    t_near(g[0].clock_memory, 2619, 0);
    t_eq(g[0].throttle, 0x24);
    t_eq(g[0].has_processes, 0);
    t_true(isnan(g[1].use) && isnan(g[1].power) && !g[1].has_throttle);
    t_near(g[1].temperature, 31, 0);
    t_eq(g[1].is_lost, 0);
    t_eq(g[2].is_lost, 1);
}

T(nvidia_smi_of_a_driver_with_other_names_is_asked_without_the_reasons)
{
    use_library("/nonexistent/library.so", "");
    put_program(
        "#!/bin/sh\n"
        "case $1 in *reasons*) echo 'Field is not a valid field to query.'; exit 2 ;; esac\n"
        "echo 'Tesla T4, 5, 1, 15360, 9.1, 70, 40, 300, 405'\n");
    take();
    t_eq(sample.gpus, 1);
    t_str(sample.gpu[0].name, "Tesla T4");
    t_near(sample.gpu[0].clock_memory, 405, 0);
    t_eq(sample.gpu[0].has_throttle, 0);
}

T(nvidia_smi_that_hangs_is_given_up)
{
    double start = clock_mono();
    use_library("/nonexistent/library.so", "");
    put_program("#!/bin/sh\nwhile :; do :; done\n");
    struct smi smi = {.patience_s = 0.2};
    machine_clear(&sample);
    smi_sample(&smi, &sample);
    t_eq(smi.is_absent, 1);
    t_eq(smi.is_without_reasons, 0); /* asked once: it would hang again */
    t_eq(sample.gpus, 0);
    t_true(clock_mono() - start < 5);
}

/* ---- amdgpu ---- */

T(every_file_of_amdgpu_is_sampled)
{
    const char *dir = folder();
    use_library("/nonexistent/library.so", "");
    put(dir, "sys/class/drm/card1/device/vendor", "0x1002\n");
    put(dir, "sys/class/drm/card1/device/product_name", "AMD Instinct MI300X\n");
    put(dir, "sys/class/drm/card1/device/gpu_busy_percent", "93\n");
    put(dir, "sys/class/drm/card1/device/mem_info_vram_used", "150000000000\n");
    put(dir, "sys/class/drm/card1/device/mem_info_vram_total", "206141652992\n");
    put(dir, "sys/class/drm/card1/device/hwmon/hwmon4/power1_average", "701000000\n");
    put(dir, "sys/class/drm/card1/device/hwmon/hwmon4/power1_cap", "750000000\n");
    put(dir, "sys/class/drm/card1/device/hwmon/hwmon4/temp1_input", "71500\n");
    put(dir, "sys/class/drm/card1/device/hwmon/hwmon4/freq1_input", "2100000000\n");
    put(dir, "sys/class/drm/card1/device/hwmon/hwmon4/freq2_input", "1300000000\n");
    put(dir, "sys/class/drm/card3/device/vendor", "0x1002\n");
    put(dir, "sys/class/drm/card3/device/device", "0x73bf\n");
    put(dir, "sys/class/drm/card3/device/gpu_busy_percent", "250\n");
    put(dir, "sys/class/drm/card3/device/mem_info_vram_used", "many\n");
    put(dir, "sys/class/drm/card3/device/hwmon/hwmon5/power1_input", "30000000\n");
    put(dir, "sys/class/drm/card0/device/vendor", "0x8086\n");
    take();
    const struct machine_gpu *g = sample.gpu;
    t_eq(sample.gpus, 2);
    t_str(g[0].name, "AMD Instinct MI300X");
    t_str(g[0].source, "amdgpu");
    t_near(g[0].use, 0.93, 1e-12);
    t_near(g[0].memory_used, 150e9, 0);
    t_near(g[0].memory_total, 206141652992.0, 0);
    t_near(g[0].power, 701, 1e-9);
    t_near(g[0].power_limit, 750, 1e-9);
    t_near(g[0].temperature, 71.5, 1e-9);
    t_near(g[0].clock_sm, 2100, 1e-9);
    t_near(g[0].clock_memory, 1300, 1e-9);
    t_eq(g[0].has_throttle + g[0].has_processes, 0);
    t_str(g[1].name, "AMD GPU 0x73bf");
    t_true(isnan(g[1].use) && isnan(g[1].memory_used) && isnan(g[1].temperature));
    t_near(g[1].power, 30, 1e-9);
}

/* ---- the host ---- */

static void put_host(const char *cpu, const char *net)
{
    static int loopback = 1000; /* grows, and is not counted */
    char text[1000];
    loopback += 5000;
    snprintf(text, sizeof text, "cpu  %s\ncpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\nintr 1\n", cpu);
    put(folder(), "proc/stat", text);
    snprintf(text, sizeof text,
             "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
             "    lo: %d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0\n%s",
             loopback, loopback, net);
    put(folder(), "proc/net/dev", text);
}

T(rates_are_differences_of_two_samples)
{
    use_library("/nonexistent/library.so", "");
    put(folder(), "proc/loadavg", "1.25 2.5 3.75 1/100 99\n");
    put_host("100 0 100 800 0 0 0 0 0 0", "  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 "
                                          "0\nwlan0:2000 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n");
    struct machine *m = machine_open(folder());
    machine_sample(m, &sample);
    t_true(isnan(sample.seconds) && isnan(sample.cpu) && isnan(sample.process_cpu) &&
           isnan(sample.net_in) && isnan(sample.net_out));
    t_eq(sample.cpus, 3);
    t_near(sample.load[0], 1.25, 0);
    t_near(sample.load[1], 2.5, 0);
    t_near(sample.load[2], 3.75, 0);
    t_true(sample.memory_total > 1e6 && sample.memory_used > 0 &&
           sample.memory_used < sample.memory_total);
    t_true(sample.disk_total > 0 && sample.disk_free <= sample.disk_total);
    put_host("130 10 110 860 40 0 0 0 0 0", /* 50 of 150 ticks were neither idle nor waiting */
             "  eth0: 61000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\nwlan0:2000 1 0 0 0 0 0 0 3050 1 0 0 0 "
             "0 0 0\n");
    clock_sleep(0.05);
    machine_sample(m, &sample);
    t_true(sample.seconds >= 0.05);
    t_near(sample.cpu, 50.0 / 150, 1e-12);
    t_near(sample.net_in * sample.seconds, 60000, 1e-6);
    t_near(sample.net_out * sample.seconds, 3000, 1e-6);
    t_true(sample.process_cpu >= 0);
    put_host("1 1 1 1 1 0 0 0 0 0",
             "  eth0: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"); /* counters restarted */
    machine_sample(m, &sample);
    t_true(isnan(sample.cpu) && isnan(sample.net_in) && isnan(sample.net_out));
    machine_close(m);
}

T(a_machine_without_proc_is_unknown_and_no_error)
{
    use_library("/nonexistent/library.so", "");
    take();
    t_eq(sample.cpus, 0);
    t_true(isnan(sample.load[0]) && isnan(sample.cpu));
}

/* ---- the thread ---- */

T(the_thread_hands_over_each_sample_once)
{
    double start = clock_mono();
    int taken = 0;
    use_library("libnvml.so", two);
    struct machine_watch *w = machine_watch_start(".", 0.1);
    t_true(w != NULL);
    while (taken < 2 && clock_mono() - start < 30) {
        taken += machine_watch_take(w, &sample);
        clock_sleep(0.005);
    }
    t_eq(taken, 2);
    t_true(sample.seconds > 0);
    t_eq(sample.gpus, 2);
    machine_watch_stop(w);
}

/* ---- records ---- */

static struct machine_sample back;

/* Through a record into a run view. */
static struct runview *record_of(const struct machine_sample *s)
{
    struct record *r = record_new();
    struct runview *v = runview_new();
    struct str out = {0};
    struct err e = {0};
    struct value body;
    uint64_t seq;
    t_true(r && v);
    system_record(r, 12, s);
    t_ok(record_end(r, 1, &out, &e), &e);
    t_true(record_parse(out.p, out.len, &seq, &body, &e) > 0);
    runview_take(v, body);
    t_true(v->system != NULL);
    t_eq(v->system_step, 12);
    t_eq(v->invalid, 0);
    back = *v->system;
    record_free(r);
    str_release(&out);
    return v;
}

static void t_point(const struct runview *v, const char *name, double value, const char *unit)
{
    const struct series *s = runview_series(v, name);
    t_truef(s && s->n == 1, "%s: no value", name);
    t_near(s->value[0], value, 1e-9 * (1 + fabs(value)));
    t_str(s->unit, unit);
}

T(a_sample_survives_its_record)
{
    use_library("libnvml.so", two);
    put(folder(), "proc/4242/comm", "python3\n");
    put_host("1 0 1 8 0 0 0 0", "  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n");
    put(folder(), "proc/loadavg", "1.25 2.5 3.75 1/100 99\n");
    take();
    sample.seconds = 5;
    sample.cpu = 0.25;
    sample.process_cpu = 1.5;
    sample.net_in = 1e6;
    sample.net_out = 2e6;
    sample.gpu[1].is_lost = 1;
    sample.gpu[1].use = (double)NAN;
    sample.gpu[1].processes_more = 3;
    sample.gpus_more = 2;
    struct runview *v = record_of(&sample);
    t_near(back.time, sample.time, 0);
    t_str(back.host, sample.host);
    t_eq(back.cpus, 3);
    t_near(back.seconds, 5, 0);
    t_near(back.cpu, 0.25, 0);
    t_near(back.process_cpu, 1.5, 0);
    t_near(back.load[2], 3.75, 0);
    t_near(back.memory_used, sample.memory_used, 0);
    t_near(back.memory_total, sample.memory_total, 0);
    t_near(back.disk_free, sample.disk_free, 0);
    t_near(back.disk_total, sample.disk_total, 0);
    t_near(back.net_in, 1e6, 0);
    t_near(back.net_out, 2e6, 0);
    t_eq(back.gpus, 2);
    t_eq(back.gpus_more, 2);
    check_first(&back.gpu[0]);
    t_eq(back.gpu[1].is_lost, 1);
    t_true(isnan(back.gpu[1].use));
    t_eq(back.gpu[1].processes_more, 3);
    t_point(v, "system/cpu", 25, "%");
    t_point(v, "system/memory_percent", 100 * sample.memory_used / sample.memory_total, "%");
    t_point(v, "system/load", 1.25, "");
    t_point(v, "system/disk_percent",
            100 * (sample.disk_total - sample.disk_free) / sample.disk_total, "%");
    t_point(v, "system/net_in", 1e6, "B/s");
    t_point(v, "system/net_out", 2e6, "B/s");
    t_point(v, "system/gpu.0.gpu", 87, "%");
    t_point(v, "system/gpu.0.memoryAllocated", 100 * 40e9 / 85899345920.0, "%");
    t_point(v, "system/gpu.0.powerWatts", 612.345, "W");
    t_point(v, "system/gpu.0.temp", 64, "C");
    t_true(runview_series(v, "system/gpu.1.gpu") == NULL); /* unknown: no point */
    runview_free(v);
}

T(an_empty_sample_makes_a_record_without_values)
{
    machine_clear(&sample);
    sample.time = 7;
    struct runview *v = record_of(&sample);
    t_true(isnan(back.cpu) && isnan(back.memory_used) && isnan(back.load[1]) && back.gpus == 0);
    t_eq(v->n_series, 0);
    runview_free(v);
}

T(values_of_a_hostile_record_are_bounded)
{
    struct record *r = record_new();
    struct str out = {0};
    struct err e = {0};
    struct value body;
    uint64_t seq;
    record_begin(r, "system", 1, 5);
    record_str(r, "host", "a\x1b]0;x\x07\xff");
    record_int(r, "cpus", INT64_MAX);
    record_num(r, "cpu", 17);
    record_num(r, "memory_used", -1);
    record_str(r, "memory_total", "much");
    record_num(r, "net_in", (double)INFINITY);
    record_int(r, "load", 3);
    record_array(r, "gpus");
    record_int(r, NULL, 4);
    for (int i = 0; i < 100; i++) {
        record_map(r, NULL);
        record_str(r, "name",
                   "\x1b[2J0123456789012345678901234567890123456789012345678901234567890123456789");
        record_num(r, "use", 1e300);
        record_num(r, "temperature", -300);
        record_array(r, "throttle");
        record_str(r, NULL, "thermal");
        record_str(r, NULL, "\x1b[31m");
        record_int(r, NULL, 3);
        record_close(r);
        record_array(r, "processes");
        for (int k = 0; k < 40; k++) {
            record_map(r, NULL);
            record_int(r, "pid", k - 1);
            record_str(r, "name",
                       "\x9b"
                       "x\ny");
            record_close(r);
        }
        record_close(r);
        record_int(r, "processes_more", -5);
        record_close(r);
    }
    record_close(r);
    record_int(r, "gpus_more", INT64_MIN);
    t_ok(record_end(r, 1, &out, &e), &e);
    t_true(record_parse(out.p, out.len, &seq, &body, &e) > 0);
    struct runview *v = runview_new();
    runview_take(v, body);
    const struct machine_sample *s = v->system;
    t_str(s->host, "a?]0;x?"
                   "?");
    t_eq(s->cpus, 0);
    t_true(isnan(s->cpu) && isnan(s->memory_used) && isnan(s->memory_total) && isnan(s->net_in) &&
           isnan(s->load[0]));
    t_eq(s->gpus, MACHINE_GPUS);
    t_eq(s->gpus_more, 100 - MACHINE_GPUS);
    t_eq(strlen(s->gpu[3].name), sizeof s->gpu[3].name - 1);
    t_true(s->gpu[3].name[0] == '?' && isnan(s->gpu[3].use) && isnan(s->gpu[3].temperature));
    t_eq(s->gpu[3].throttle, 1 << 5);
    t_eq(s->gpu[3].processes, MACHINE_PROCESSES);
    t_eq(s->gpu[3].processes_more, 39 - MACHINE_PROCESSES);
    t_str(s->gpu[3].process[0].name, "?x y");
    runview_free(v);
    record_free(r);
    str_release(&out);
}
