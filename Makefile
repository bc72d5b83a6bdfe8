# depthscope: `make` builds ./depthscope, `make test` runs the tests, `make help` lists the rest.

# ---- settings ------------------------------------------------------------------------------------

PREFIX ?= /usr/local
DESTDIR ?=
DATADIR := $(PREFIX)/share/depthscope
MANDIR  ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR  ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
BINARY  ?= $(or $(wildcard build/portable/depthscope),$(BIN))
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/python/depthscope/_version.py)# its only place
JOBS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)# a -j on the command line wins
endif
Q := $(if $(V),,@)

# The CPU the objects are made for.  The flags stamp below rebuilds them where the answer differs.
comma := ,
cpu_has = $(shell for f in $(1); do grep -qw $$f /proc/cpuinfo || exit 0; done 2>/dev/null; echo y)
ARCH ?= $(if $(CROSS),,$(if $(filter x86_64,$(shell uname -m)),$(if $(or $(PORTABLE),$(call cpu_has,avx2 bmi1 bmi2 f16c fma abm movbe)),x86-64-v3,x86-64)))

# PORTABLE=1, which `make portable` sets: a static program with its data inside.  CROSS=aarch64-linux-gnu-
# compiles it for another processor.
ifdef CROSS
CC := $(CROSS)gcc
AR := $(CROSS)ar
endif

# Variants: one row each.  KIND comes from DEBUG=1, SAN=address,undefined, SAN=thread, COV=1, FUZZER=1
# or PORTABLE=1; BLAS=ref goes with any of them (no cblas: for valgrind, SAN=thread and SAN=memory).
# Release code is optimised where it is waited for: with all of it at -O3 two thirds of the build went
# into code that itself waits for a person or a file.  Under sanitizers tests spend most of their time
# in the hot files.
KIND           := $(if $(PORTABLE),portable,$(if $(FUZZER),fuzz,$(if $(SAN),san,$(if $(COV),cover,$(if $(DEBUG),debug,release)))))
OPT.1          := src/cli/% src/tui/% src/figures/% src/eval/% src/io/% src/routing/% src/training/% tests/%
OPT.2          := src/base/% src/data/% src/models/%
OPT.release     = $(if $(filter $(OPT.1),$<),-O1,$(if $(filter $(OPT.2),$<),-O2,-O3))
OPT.portable    = $(OPT.release)
OPT.hot        := src/engine/kernels/gemm_% src/engine/kernels/vec_% src/base/rng.c
OPT.san         = $(if $(filter $(OPT.hot),$<),-O2,-O1)
OPT.cover       = $(if $(filter src/engine/%,$<),-O1,-O0)
OPT             = $(OPT.$(KIND))
# Release code is position-independent, guards its stack and checks the sizes of buffers (tests/proof/THREATS.md has the cost);
# what a compiler lacks is left out.  A sanitizer checks more by itself, and fortified calls would bypass it.
cc_takes        = $(shell echo 'int x;' | $(CC) -O1 -Werror $(1) -fsyntax-only -x c - 2>/dev/null && echo '$(1)')
HARDEN         := $(if $(filter release portable,$(KIND)),$(call cc_takes,-fPIE) $(call cc_takes,-fstack-protector-strong) \
	$(if $(findstring -O0,$(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3))
HARDEN_LINK    := $(if $(filter Linux,$(shell uname -s)),$(if $(filter release,$(KIND)),-pie -Wl$(comma)-z$(comma)now) $(if $(filter release portable,$(KIND)),-Wl$(comma)-z$(comma)relro))
SLOW           := -g -fno-omit-frame-pointer -DDEPTHSCOPE_DEBUG
FLAGS.release  := $(ARCH:%=-march=%) $(HARDEN) -fno-math-errno -fno-trapping-math -ffp-contract=fast -g1
FLAGS.debug    := -O1 $(SLOW)
FLAGS.san      := $(SLOW) -fsanitize=$(SAN) -fno-sanitize=null,object-size -fno-sanitize-recover=all# the address sanitizer finds those, too
FLAGS.cover    := -g --coverage
FLAGS.fuzz     := -O1 $(SLOW) -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize-recover=all
FLAGS.portable := $(FLAGS.release) -g0 -static -ffunction-sections -fdata-sections
VARIANT        := $(if $(filter san,$(KIND)),san-$(SAN),$(KIND))$(if $(filter ref,$(BLAS)),-ref)$(CROSS:%-linux-gnu-=-%)

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wvla -Wundef -Wwrite-strings -Wpointer-arith -Wformat=2 \
	-Wdouble-promotion -Wimplicit-fallthrough -Wcast-qual -Wno-missing-field-initializers $(if $(filter 1,$(WERROR)),-Werror)

# ---- sources -------------------------------------------------------------------------------------
# PARTS='base io' builds only those layers, ONLY='io_ json' only the tests whose path holds a word.

empty :=
space := $(empty) $(empty)
B    := build/$(VARIANT)
D    := $(B)-double
MAIN := $(wildcard src/cli/main.c src/cli/version.c)# not in the library
RANKS := src/base/ranks_mpi.c src/base/ranks_watch.c# the program of make MPI=1 alone
SRC  := $(filter-out $(MAIN) $(RANKS),$(wildcard src/*/*.c src/*/*/*.c))
ifdef PARTS
MAIN :=
SRC  := $(foreach p,$(PARTS),$(filter src/$(p)/%,$(SRC)))
endif
SRC64 := $(filter-out src/cli/% src/tui/% src/figures/%,$(SRC))
OBJ   := $(SRC:%.c=$(B)/%.o)
OBJ64 := $(SRC64:%.c=$(D)/%.o)
LIB   := $(B)/libdepthscope$(addprefix -,$(subst $(space),-,$(PARTS))).a
LIB64 := $(LIB:$(B)/%=$(D)/%)
# MPI=1 links the same objects and those of RANKS, which come before the library's twin of them.
MPICC ?= mpicc
MPI_DIR := $(B)/$(notdir $(firstword $(MPICC)))
RANKS_OBJ := $(if $(filter 1,$(MPI)),$(RANKS:%.c=$(MPI_DIR)/%.o))
BIN   := $(if $(MAIN),$(if $(RANKS_OBJ),$(MPI_DIR),$(B))/depthscope)
DATA  := $(wildcard themes/*.theme data/*.yaml data/*.txt data/known/*)
EMBEDDED := $(if $(PORTABLE),$(B)/embedded.o)
TOP   := $(if $(BIN),$(if $(filter release,$(VARIANT)),depthscope))

only = $(if $(ONLY),$(foreach f,$(1),$(if $(strip $(foreach o,$(ONLY),$(findstring $(o),$(f)))),$(f))),$(1))
TESTS32 := $(call only,$(wildcard $(foreach d,pair golden unit screens fault,tests/$(d)/test_*.c)))# the longest first
TESTS64 := $(call only,$(wildcard tests/grad/test_*.c))
FUZZ    := $(call only,$(wildcard tests/fuzz/fuzz_*.c))
SCRIPTS := $(call only,$(wildcard tests/*/test_*.py tests/*/test_*.sh))
PROGRAMS := $(TESTS32:%.c=$(B)/%) $(TESTS64:%.c=$(D)/%) $(FUZZ:%.c=$(B)/%)
NVML := $(B)/tests/unit/libnvml.so $(B)/tests/unit/libnvml_old.so

# Set-up: what is missing is installed, and the flags of what is there are noted, once per host.
GOALS := $(or $(MAKECMDGOALS),all)
SETUP := build/setup/$(shell uname -nm | tr -c 'A-Za-z0-9_.\n' -)
ifneq ($(filter-out clean help uninstall deb portable $(if $(BINARY),,wheel),$(GOALS)),)
LEVEL := $(if $(filter test% lint cover fuzz golden programs driven proof,$(GOALS))$(findstring tests/,$(GOALS)),test,build)$(if $(PORTABLE),-static$(CROSS:%-linux-gnu-=-%))
include $(SETUP).$(LEVEL).mk
endif

REFUSED := dlopen dlsym dlclose getaddrinfo getnameinfo freeaddrinfo gethostbyname# src/base/static.c
CPPFLAGS_ALL := -Iinclude -Isrc -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
	$(if $(filter Darwin,$(shell uname -s)),-D_DARWIN_C_SOURCE) \
	$(if $(filter ref,$(BLAS))$(PORTABLE),-DDEPTHSCOPE_NO_BLAS,$(BLAS_CFLAGS)) \
	$(if $(PORTABLE),-DDEPTHSCOPE_STATIC -Dutf8_encode=ds_utf8_encode) $(DEP_CFLAGS) $(CPPFLAGS)# libjansson.a has a utf8_encode
CFLAGS_ALL := -std=c11 $(WARN) -fno-common -fopenmp-simd $(FLAGS.$(KIND)) -pthread $(CFLAGS)
LDLIBS_ALL := $(DEP_LIBS) -ldl -lm -pthread $(LDLIBS)
COMPILE    = $(CC) $(CPPFLAGS_ALL) $(OPT) $(CFLAGS_ALL) -MMD -MP
COVERED   := $(if $(filter cover,$(KIND)),$(B)/tests/cover_exit.o)
LINK       = $(CC) $(FLAGS.$(KIND)) $(HARDEN_LINK) $(if $(COVERED),-Wl$(comma)--wrap=_exit -Wl$(comma)--wrap=kill) $(if $(PORTABLE),-s -Wl$(comma)--gc-sections $(REFUSED:%=-Wl$(comma)--wrap=%)) $(LDFLAGS)

# ---- rules ---------------------------------------------------------------------------------------

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all run programs driven fuzzers test test-full proof lint bench bench-vs figs cover golden docs fuzz wheel deb portable install \
	uninstall clean help FORCE

all: $(LIB) $(BIN) $(TOP) ## build ./depthscope; MPI=1 V=1 DEBUG=1 SAN=address,undefined BLAS=ref CC=clang

$(SETUP).%.mk: tests/setup/deps.txt tests/setup/setup.sh
	$(Q)CC='$(CC)' sh tests/setup/setup.sh $* $@

# Objects depend on the flags they were made with: another CPU, compiler or option makes them again.
$(B)/flags $(D)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(COMPILE) $(LDLIBS_ALL) $(OPT.1) $(OPT.2) $(OPT.hot)' | cmp -s - $@ || printf '%s\n' '$(COMPILE) $(LDLIBS_ALL) $(OPT.1) $(OPT.2) $(OPT.hot)' >$@
$(B)/datadir: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(DATADIR) $(VERSION)' | cmp -s - $@ || printf '%s\n' '$(DATADIR) $(VERSION)' >$@
$(filter $(B)/src/cli/%,$(OBJ)) $(MAIN:%.c=$(B)/%.o): $(B)/datadir

# The commit (COMMIT=... names it in a tree without git) is known to one object, which is not in the library: a commit
# compiles that one and links the program.  Where git refuses (the tree is another user's) what is known stays.
$(B)/commit: FORCE
	@mkdir -p $(@D)
	@c='$(COMMIT)'; [ "$$c" ] || [ ! -e .git ] || c=$$(GIT_OPTIONAL_LOCKS=0 git describe --always --abbrev=12 --dirty --exclude='*' 2>/dev/null) || \
	c=$$(cat $@ 2>/dev/null); : "$${c:=unknown}"; printf '%s\n' "$$c" | cmp -s - $@ || printf '%s\n' "$$c" >$@
$(B)/src/cli/version.o: $(B)/commit

# Only src/cli knows where `make install` puts the data; only tests see Check; OpenBLAS is loaded when it is asked for.
BLAS_DIR := $(patsubst -L%,%,$(firstword $(filter -L%,$(BLAS_LIBS))))
EXTRA = $(if $(filter src/engine/gemm_blas.c,$<),-DDEPTHSCOPE_BLAS_DIR='"$(BLAS_DIR)"') $(if $(filter src/cli/%,$<),-DDEPTHSCOPE_DATADIR='"$(DATADIR)"' -DDEPTHSCOPE_VERSION='"$(VERSION)"') \
	$(if $(filter src/cli/version.c,$<),-DDEPTHSCOPE_COMMIT="\"$$(cat $(B)/commit)\"" -DDEPTHSCOPE_BUILD='"$(VARIANT)"' -DDEPTHSCOPE_ARCH='"$(ARCH)"') $(if $(filter tests/%,$<),-Itests $(CHECK_CFLAGS) $(if $(CROSS),-fno-tree-vectorize))# gcc 12 for AArch64 fails on fmax

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $<")
	$(Q)$(COMPILE) $(EXTRA) -DREAL_BITS=32 -c -o $@ $<

$(D)/%.o: %.c $(D)/flags
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $< (double)")
	$(Q)$(COMPILE) $(EXTRA) -Wno-double-promotion -DREAL_BITS=64 -c -o $@ $<

$(LIB): $(OBJ) $(EMBEDDED)
$(LIB64): $(OBJ64) $(EMBEDDED)
$(LIB) $(LIB64):
	@mkdir -p $(@D); rm -f $@
	@$(if $(V),,echo "AR $@")
	$(Q)$(AR) rc $@ $^

# What a host may lack, inside the program (src/base/embedded.c).
$(EMBEDDED): src/base/embed.sh $(DATA)
	@mkdir -p $(@D)
	$(Q)sh $< $(DATA) /locale/LC_CTYPE=/usr/lib/locale/C.utf8/LC_CTYPE >$(@:.o=.s) && $(CC) -c -o $@ $(@:.o=.s)

# Open MPI's mpicc says what it adds with --showme, MPICH's with -compile_info and -link_info.
mpi_says = $(shell $(MPICC) --showme:$(1) 2>/dev/null || $(MPICC) -$(1)_info 2>/dev/null)
$(MPI_DIR)/%.o: %.c $(B)/flags
	@mkdir -p $(@D); command -v $(firstword $(MPICC)) >/dev/null || { echo 'MPI=1: $(MPICC) not found: install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev, or set MPICC'; exit 1; }
	@$(if $(V),,echo "CC $< ($(MPICC))")
	$(Q)$(COMPILE) $(patsubst -I%,-isystem %,$(filter -I% -D%,$(call mpi_says,compile))) -DREAL_BITS=32 -c -o $@ $<

$(MPI_DIR)/depthscope: $(MAIN:%.c=$(B)/%.o) $(RANKS_OBJ) $(COVERED) $(LIB)
	@$(if $(V),,echo "LD $@")
	$(Q)$(LINK) -o $@ $^ $(LDLIBS_ALL) $(filter -L% -l% -Wl%,$(call mpi_says,link))

$(B)/depthscope: $(MAIN:%.c=$(B)/%.o) $(COVERED) $(LIB)
$(TESTS32:%.c=$(B)/%): $(B)/%: $(B)/%.o $(B)/tests/t.o $(COVERED) $(LIB)
$(FUZZ:%.c=$(B)/%): $(B)/%: $(B)/%.o $(if $(FUZZER),,$(B)/tests/fuzz/replay.o) $(COVERED) $(LIB)
$(TESTS64:%.c=$(D)/%): $(D)/%: $(D)/%.o $(D)/tests/t.o $(COVERED) $(LIB64)
$(B)/depthscope $(PROGRAMS):
	@$(if $(V),,echo "LD $@")
	$(Q)$(LINK) $(if $(FUZZER),-fsanitize=fuzzer) -o $@ $^ $(if $(filter $(PROGRAMS),$@),$(CHECK_LIBS)) $(LDLIBS_ALL)

# Stands in for NVIDIA's library in tests: that of a current driver, and of one without some functions.
$(NVML): tests/unit/nvml_stub.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 $(WARN) -shared -fPIC $(if $(findstring _old,$@),-DOLD) -o $@ $<

depthscope: $(BIN) FORCE
	@cmp -s $< $@ || cp -f $< $@

# ---- targets -------------------------------------------------------------------------------------

run: all ## build, then open the workbench on a quick training run
	./depthscope --quick

programs: $(PROGRAMS) driven
driven: $(BIN) $(UNDER) $(NVML) # what tests start and load
$(B)/depthscope.sh: $(BIN)
	@printf '#!/bin/sh\nexec qemu-%s-static %s "$$@"\n' '$(CROSS:%-linux-gnu-=%)' '$(abspath $<)' >$@; chmod +x $@

fuzzers: $(FUZZ:%.c=$(B)/%)

# One tree for what a run of the tests sees; DEPTHSCOPE is the program under test.  Those of another
# processor run in qemu, also where a test starts the program: make test PORTABLE=1 CROSS=... ONLY=...
UNDER := $(if $(CROSS),$(B)/depthscope.sh)
TEST_ENV = DEPTHSCOPE='$(abspath $(or $(UNDER),$(BIN)))' BUILD_DIR=$(B) $(if $(filter san cover,$(KIND))$(CROSS),T_SLOW_FACTOR=4) \
	$(if $(CROSS),T_RUNNER=qemu-$(CROSS:%-linux-gnu-=%)-static) \
	ASAN_OPTIONS=detect_leaks=1:$(ASAN_OPTIONS) UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=die_after_fork=0 \
	LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lint/lsan.supp:print_suppressions=0
SUBMAKE  = $(MAKE) --no-print-directory

test: ## every test but the long ones; ONLY='word ...' PARTS='layer ...' SAN=... BLAS=ref DEBUG=1
	+$(Q)failed=; $(SUBMAKE) -k programs || failed=1; \
	$(TEST_ENV) BUILD_FAILED=$$failed sh tests/run.sh -j $(JOBS) $(PROGRAMS) $(SCRIPTS)

test-full: ## test, then fuzzing, valgrind and 200 steps of every method
	+$(Q)MAKE='$(SUBMAKE)' sh tests/full.sh

MINUTES ?= 10
proof: programs ## faults at every call, crash orders, fuzzing, mutants, ...: MINUTES=10 of it, added to tests/proof; PROOF='part ...'
	$(Q)$(TEST_ENV) python3 tests/proof/proof.py --minutes $(MINUTES) --only '$(PROOF)' $(if $(SLICE),--slice)

lint: $(SETUP).test.mk ## layers, headers, banned functions, words, lengths, format; LINT_TIDY=1 FORMAT=strict
	$(Q)CC='$(CC)' CPPFLAGS='$(CPPFLAGS_ALL) $(CHECK_CFLAGS) $(WARN) -DDEPTHSCOPE_DATADIR="" -DDEPTHSCOPE_VERSION="" -DDEPTHSCOPE_COMMIT="" -DDEPTHSCOPE_BUILD="" -DDEPTHSCOPE_ARCH=""' \
	sh tests/lint/lint.sh

bench: all ## speed of ops, steps, prefill and decode; ARGS=...
	./depthscope bench $(ARGS)

bench-vs: all ## the same beside another revision: make bench-vs REV=main
	+$(Q)MAKE='$(SUBMAKE)' sh tests/bench/vs.sh '$(REV)' $(ARGS)

FIG_RUNS ?= $(wildcard tests/golden/runs/* runs/*)
figs: all ## every figure of FIG_RUNS into exports/
	./depthscope figure all $(or $(FIG_RUNS),$(error no run to draw: make figs FIG_RUNS='runs/NAME ...')) -o exports

cover: ## coverage of lines and branches per file and directory, from the tests
	+$(Q)$(SUBMAKE) COV=1 test; sh tests/cover.sh build/cover

golden: programs ## write the goldens again, then show what moved
	$(Q)GENERATE=1 $(TEST_ENV) sh tests/run.sh -j $(JOBS) $(filter $(B)/tests/golden/% $(B)/tests/screens/% $(B)/tests/unit/test_fig_%,$(PROGRAMS)) \
		$(filter tests/golden/% tests/screens/%,$(SCRIPTS)); git diff --stat

docs: all ## the pages of data/reference that the program prints of itself
	$(Q)sh tests/docs.sh ./depthscope

FUZZ_SECONDS ?= 60
fuzz: ## FUZZ_SECONDS=60 of libFuzzer for each target (needs clang; without it the inputs are replayed)
	+$(Q)if command -v clang >/dev/null 2>&1; then $(SUBMAKE) CC=clang FUZZER=1 fuzzers && \
	sh tests/fuzz/run.sh build/fuzz $(FUZZ_SECONDS) $(FUZZ); else echo 'fuzz: no clang here; replaying' && \
	$(SUBMAKE) fuzzers && sh tests/run.sh $(FUZZ:%.c=$(B)/%); fi

# The wheel holds BINARY, the portable program where there is one; BINARY= leaves it out.
wheel: $(filter $(BIN),$(BINARY)) ## the Python package and the program into build/wheel; BINARY=FILE, BINARY= (package alone)
	$(Q)python3 src/python/build_wheel.py build/wheel $(if $(BINARY),'$(BINARY)')

portable: ## one static file that needs nothing: build/portable/depthscope; CROSS=aarch64-linux-gnu-
	+$(Q)$(SUBMAKE) PORTABLE=1 build/portable$(CROSS:%-linux-gnu-=-%)/depthscope
	$(Q)sh tests/setup/portable.sh build/portable$(CROSS:%-linux-gnu-=-%)/depthscope

# Built for every processor of the architecture, with Debian's flags but this project's optimisation.
DEB_FLAGS = DEB_BUILD_MAINT_OPTIONS=hardening=+all DEB_CFLAGS_MAINT_STRIP=-O2 dpkg-buildflags --get
deb: ## a Debian package into build/deb; needs dpkg-dev
	+$(Q)command -v dpkg-buildflags >/dev/null || { echo 'deb: missing dpkg-buildflags: install dpkg-dev'; exit 1; }; \
	$(SUBMAKE) B=build/deb/objects ARCH=$(if $(filter x86_64,$(shell uname -m)),x86-64) PREFIX=/usr TOP= \
		CPPFLAGS="$$($(DEB_FLAGS) CPPFLAGS)" CFLAGS="$$($(DEB_FLAGS) CFLAGS)" LDFLAGS="$$($(DEB_FLAGS) LDFLAGS)" all && \
	sh src/packages/deb.sh build/deb/objects/depthscope build/deb

PLACES = DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' DATADIR='$(DATADIR)' MANDIR='$(MANDIR)' BASHDIR='$(BASHDIR)' ZSHDIR='$(ZSHDIR)' FISHDIR='$(FISHDIR)'
install: all ## into PREFIX (/usr/local), below DESTDIR
	$(Q)$(PLACES) sh src/packages/install.sh install '$(BIN)'

uninstall: ## exactly what install put there
	$(Q)$(PLACES) sh src/packages/install.sh uninstall

clean: ## remove everything that was built
	rm -rf build depthscope

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1~\2/p' Makefile | awk -F'~' '{printf "  %-10s %s\n", $$1, $$2}'

-include $(OBJ:.o=.d) $(RANKS_OBJ:.o=.d) $(OBJ64:.o=.d) $(MAIN:%.c=$(B)/%.d) $(PROGRAMS:=.d) \
	$(B)/tests/t.d $(D)/tests/t.d $(B)/tests/fuzz/replay.d
