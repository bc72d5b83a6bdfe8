# depthscope: `make` builds ./depthscope, `make test` runs the tests, `make help` lists the rest.

# ---- settings ------------------------------------------------------------------------------------

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
Q := $(if $(V),,@)

# The CPU the objects are made for.  The flags stamp below rebuilds them where the answer differs.
cpu_has = $(shell for f in $(1); do grep -qw $$f /proc/cpuinfo || exit 0; done 2>/dev/null; echo y)
ARCH ?= $(if $(filter x86_64,$(shell uname -m)),$(if $(call cpu_has,avx2 bmi1 bmi2 f16c fma abm movbe),x86-64-v3,x86-64))

# Variants: one row each.  SAN=address,undefined  SAN=thread  COV=1  DEBUG=1, and BLAS=ref with any.
FAST            := -O3 $(if $(ARCH),-march=$(ARCH)) -fno-math-errno -fno-trapping-math -ffp-contract=fast -g
FLAGS.release   := $(FAST)
FLAGS.debug     := -O1 -g -fno-omit-frame-pointer -DDEPTHSCOPE_DEBUG
FLAGS.san        = $(FLAGS.debug) -O2 -fsanitize=$(SAN) -fno-sanitize-recover=all
FLAGS.cover     := -O0 -g --coverage
KIND            := $(if $(SAN),san,$(if $(COV),cover,$(if $(DEBUG),debug,release)))
VARIANT         := $(if $(SAN),san-$(SAN),$(KIND))$(if $(filter ref,$(BLAS)),-ref)
comma           := ,
LINK.san         = -fsanitize=$(SAN)
LINK.cover      := --coverage

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wvla -Wundef -Wwrite-strings -Wpointer-arith -Wformat=2 \
	-Wdouble-promotion -Wimplicit-fallthrough -Wcast-qual $(if $(WERROR),-Werror)

# ---- sources -------------------------------------------------------------------------------------

B    := build/$(VARIANT)
D    := $(B)-double
MAIN := $(wildcard src/cli/main.c)
SRC  := $(filter-out src/cli/main.c,$(wildcard src/*/*.c src/*/*/*.c))
SRC64 := $(filter-out src/cli/% src/tui/%,$(SRC))
OBJ   := $(SRC:%.c=$(B)/%.o)
OBJ64 := $(SRC64:%.c=$(D)/%.o)
LIB   := $(B)/libdepthscope.a
LIB64 := $(D)/libdepthscope.a
BIN   := $(if $(MAIN),$(B)/depthscope)
TOP   := $(if $(BIN),$(if $(filter release,$(VARIANT)),depthscope))

TESTS32 := $(wildcard $(foreach d,unit pair golden screens fault,tests/$(d)/test_*.c))
TESTS64 := $(wildcard tests/grad/test_*.c)
FUZZ    := $(wildcard tests/fuzz/fuzz_*.c)
SCRIPTS := $(wildcard tests/*/test_*.py tests/*/test_*.sh)
PROGRAMS := $(TESTS32:%.c=$(B)/%) $(TESTS64:%.c=$(D)/%) $(FUZZ:%.c=$(B)/%)

# Set-up: what is missing is installed, and the flags of what is there are noted, once per host.
GOALS := $(or $(MAKECMDGOALS),all)
SETUP := build/setup/$(shell uname -nm | tr -c 'A-Za-z0-9_.\n' -)
ifneq ($(filter-out clean help uninstall,$(GOALS)),)
LEVEL := $(if $(filter test% lint cover fuzz golden programs,$(GOALS))$(findstring tests/,$(GOALS)),test,build)
include $(SETUP).$(LEVEL).mk
endif

CPPFLAGS_ALL := -Iinclude -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
	$(if $(filter ref,$(BLAS)),-DDEPTHSCOPE_NO_BLAS,$(BLAS_CFLAGS)) $(DEP_CFLAGS) $(CPPFLAGS)
CFLAGS_ALL := -std=c11 $(WARN) -fno-common -fopenmp-simd $(FLAGS.$(KIND)) -pthread $(CFLAGS)
LDLIBS_ALL := $(DEP_LIBS) $(if $(filter ref,$(BLAS)),,$(BLAS_LIBS)) -lm -pthread $(LDLIBS)
COMPILE    = $(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP
LINK       = $(CC) $(FLAGS.$(KIND)) $(LINK.$(KIND)) $(LDFLAGS)

# ---- rules ---------------------------------------------------------------------------------------

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all run programs test test-full lint bench bench-vs figs cover golden fuzz install \
	uninstall clean help FORCE

all: $(LIB) $(BIN) $(TOP) ## build ./depthscope (default); V=1 DEBUG=1 SAN=address,undefined BLAS=ref

$(SETUP).%.mk: tests/setup/deps.txt tests/setup/setup.sh
	$(Q)CC='$(CC)' sh tests/setup/setup.sh $* $@

# Everything depends on the flags it was made with: another CPU, compiler or option makes it again.
$(B)/flags $(D)/flags: FORCE
	$(Q)mkdir -p $(@D); printf '%s\n' '$(COMPILE) $(LDLIBS_ALL) $(PREFIX)' | cmp -s - $@ || \
		printf '%s\n' '$(COMPILE) $(LDLIBS_ALL) $(PREFIX)' >$@

$(B)/src/cli/%.o: CPPFLAGS_ALL += -DDEPTHSCOPE_DATADIR='"$(PREFIX)/share/depthscope"'

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $<")
	$(Q)$(COMPILE) $(if $(filter tests/%,$<),-Itests $(CHECK_CFLAGS)) -DREAL_BITS=32 -c -o $@ $<

$(D)/%.o: %.c $(D)/flags
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $< (double)")
	$(Q)$(COMPILE) $(if $(filter tests/%,$<),-Itests $(CHECK_CFLAGS)) -Wno-double-promotion -DREAL_BITS=64 -c -o $@ $<

$(LIB): $(OBJ)
$(LIB64): $(OBJ64)
$(LIB) $(LIB64):
	@mkdir -p $(@D); rm -f $@
	@$(if $(V),,echo "AR $@")
	$(Q)$(AR) rc $@ $^

$(B)/depthscope: $(MAIN:%.c=$(B)/%.o) $(LIB)
$(TESTS32:%.c=$(B)/%): $(B)/%: $(B)/%.o $(B)/tests/t.o $(LIB)
$(FUZZ:%.c=$(B)/%): $(B)/%: $(B)/%.o $(B)/tests/fuzz/replay.o $(LIB)
$(TESTS64:%.c=$(D)/%): $(D)/%: $(D)/%.o $(D)/tests/t.o $(LIB64)
$(B)/depthscope $(PROGRAMS):
	@$(if $(V),,echo "LD $@")
	$(Q)$(LINK) -o $@ $^ $(if $(findstring /tests/,$@),$(CHECK_LIBS)) $(LDLIBS_ALL)

depthscope: $(B)/depthscope
	$(Q)cp -f $< $@

# ---- targets -------------------------------------------------------------------------------------

run: all ## build, then open the workbench on a quick training run
	./depthscope --quick

programs: $(PROGRAMS) $(BIN)

RUN_TESTS = DEPTHSCOPE=$(abspath $(BIN)) BUILD_DIR=$(B) $(if $(SAN),T_SLOW_FACTOR=4) sh tests/run.sh -j $(JOBS)

test: ## unit, grad, pair, golden, screen and fault tests; SAN=... and BLAS=ref as for all
	$(Q)failed=; $(MAKE) --no-print-directory -k -j $(JOBS) programs || failed=1; \
	BUILD_FAILED=$$failed $(RUN_TESTS) $(PROGRAMS) $(SCRIPTS)

clean: ## remove everything that was built
	rm -rf build depthscope

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1~\2/p' Makefile | awk -F'~' '{printf "%-12s %s\n", $$1, $$2}'

-include $(OBJ:.o=.d) $(OBJ64:.o=.d) $(MAIN:%.c=$(B)/%.d) $(PROGRAMS:=.d) $(B)/tests/t.d $(D)/tests/t.d
