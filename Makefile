# What people type. CMakeLists.txt says what is built from what.
#   make            build/linnet
#   make demo       sets up what is missing, builds, and lets the bundled model tell a story
#   make test       sets up what is missing, builds, runs every test
#   make help       the rest

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
VENV ?= .venv
# WERROR=-DLN_WERROR=ON: warnings are errors; for .ci/run.
WERROR ?=
CONFIGURE = cmake -G Ninja -S . -DCMAKE_INSTALL_PREFIX="$(PREFIX)" $(WERROR) $(CMAKE_FLAGS)

.PHONY: all setup demo demo-serve check-page quick test asan-sample tsan-sample check-long check-mutants check-amx check-neon check-macos check-archs check-mlx check-python check-gguf check-gguf-types check-training check-families check-templates check-compilers check-debian check-openapi mutants lint asan tsan test-mlx test-cuda check-cuda bench-cuda bench golden install wheel static image deb release check-packages docs check-docs check-abi clean help fuzz fuzz-run fuzz-coverage
all:
	@tools/setup.sh --check
	@mkdir -p $(BUILD)
	@$(CONFIGURE) -B $(BUILD) >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@ninja -C $(BUILD) --quiet

setup:
	@tools/setup.sh

demo: setup
	@$(MAKE) --no-print-directory all
	$(BUILD)/linnet run tiny "Tell me a short story." </dev/null

# The server on the bundled model, and its page.
demo-serve: setup
	@$(MAKE) --no-print-directory all
	@tools/demo_serve $(BUILD)/linnet

test: setup
	@$(MAKE) --no-print-directory all
	@ninja -C $(BUILD) --quiet bench_programs
	@tools/run_tests.sh $(BUILD)

# Unit tests, one golden model a family, a sample of the kernels: under a minute.
quick: all
	@LN_QUICK=1 tools/run_tests.sh $(BUILD) -LE slow

# The same tests, those with threads under ThreadSanitizer, and same bits on a model in the shape of Qwen3-0.6B (made here; needs python3
# with numpy). Half an hour.
check-long: setup
	@$(MAKE) --no-print-directory all
	@[ -f $(BUILD)/shape/config.json ] || python3 bench/shape.py qwen3-0.6b $(BUILD)/shape
	@$(MAKE) --no-print-directory asan
	@$(MAKE) --no-print-directory tsan
	@LN_LONG=1 LN_SAME_BITS_MODEL=$(abspath $(BUILD))/shape LN_TEST_TIMEOUT=7200 tools/run_tests.sh $(BUILD)
	@$(MAKE) --no-print-directory check-templates
	@$(MAKE) --no-print-directory check-docs
	@$(MAKE) --no-print-directory check-training
	@$(MAKE) --no-print-directory check-amx
	@$(MAKE) --no-print-directory check-neon
	@$(MAKE) --no-print-directory check-macos
	@$(MAKE) --no-print-directory check-archs
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory check-compilers
	@$(MAKE) --no-print-directory check-debian
	@$(MAKE) --no-print-directory check-packages
	@$(MAKE) --no-print-directory check-python

# The sources with every gcc and clang that is installed and with musl's headers, without warnings; -flto and -static. Ten minutes a compiler.
check-compilers: setup
	@tools/check_compilers $(BUILD)-compilers
# `make demo` and `make test` in a bare Debian 12 and a bare Debian 13, with the last commit. Needs root and debootstrap.
DEBIAN ?= /var/tmp/linnet-debian
check-debian:
	@tools/check_debian bookworm $(DEBIAN)-12
	@tools/check_debian trixie $(DEBIAN)-13

# 100,000 random template programs, rendered by Jinja2 and by linnet: ten minutes. With TEMPLATES="FILE.jinja..." conversations by real templates, too.
check-templates: all
	@python3 -c 'import jinja2' 2>/dev/null || { echo "SKIP: no python3-jinja2: templates are NOT compared with it"; exit 0; }; \
	    python3 -W ignore tools/jinja_programs.py check $(BUILD)/linnet && \
	    { [ -z "$(TEMPLATES)" ] || python3 -W ignore tools/real_templates.py $(BUILD)/linnet $(TEMPLATES); }
# The AMX ISA level on a model of the tile instructions, with AVX-512 and VNNI: about three minutes.
check-amx: setup
	@tools/check_amx $(BUILD)-amx
# The real mlx-lm, from PyPI, against linnet. Not a part of .ci/run. Two minutes.
check-mlx: all
	@tools/check_mlx $(BUILD)
# The Python module: a thousand opens under AddressSanitizer lose nothing, an lm-eval task has the numbers that it has through the server, and llm
# streams. PYTHON has lm-eval[api], transformers and llm. Without it they are installed from PyPI in $(BUILD)/python. Ten minutes.
check-python: all
	@$(CONFIGURE) -B $(BUILD)-asan -DLN_SANITIZE=ON -DLN_OPTIMISE="-O0 -g1" >/dev/null && ninja -C $(BUILD)-asan --quiet linnet_shared
	@tests/python/leaks.sh $(CURDIR) $(BUILD)-asan || [ $$? = 77 ]
	@tests/python/ecosystem.sh $(CURDIR) $(BUILD) $(PYTHON) || [ $$? = 77 ]
# Real GGUF files against transformers on their dequantised weights: make check-gguf [GGUF="FILE..."]. PYTHON has torch, transformers and gguf.
check-gguf: all
	@$(or $(PYTHON),python3) tools/check_gguf.py $(BUILD)/linnet $(GGUF)
# Training from scratch next to PyTorch (PYTHON has torch and transformers), and preferences of the bundled model.
check-training: all
	@python3 tools/check_preferences.py $(BUILD)/linnet
	@if $(or $(PYTHON),python3) -c 'import torch, transformers' 2>/dev/null; then $(or $(PYTHON),python3) tools/check_scratch.py $(BUILD)/linnet; \
	 else echo "SKIP: $(or $(PYTHON),python3) has no torch and transformers: training from scratch was NOT compared"; fi
# Each architecture with each type against its dequantised numbers: make check-gguf-types GGUF="FILE..." (tools/golden_gguf.py --wide makes files
# whose rows fit all types; the golden ones fit those of 32 columns).
check-gguf-types: all
	@$(or $(PYTHON),python3) tools/check_gguf_types.py $(BUILD)/linnet $(or $(GGUF),$(wildcard tests/golden/gguf/*.gguf))
# The server's page in Chromium (Debian: apt-get install chromium); pictures of it in $(BUILD)/page. Half a minute.
check-page: all
	@tests/server/page.sh $(CURDIR) $(abspath $(BUILD)) --shots $(abspath $(BUILD))/page || [ $$? = 77 ]
# The server's OpenAPI document against what it answers (schemathesis, from PyPI), and its metrics (promtool). Four minutes.
check-openapi: all
	@tests/server/openapi.sh $(CURDIR) $(BUILD)
# The kernels of aarch64, under emulation: five minutes.
check-neon:
	@tools/check_neon $(BUILD)-neon

# The sources compile and link for macOS, by zig's compiler from PyPI: five minutes the first time.
check-macos:
	@tools/check_macos $(BUILD)-macos

# The kernels of the GPU compile for all compute capabilities. Ten minutes.
check-archs: setup
	@tools/check_cuda $(BUILD)-archs

# On a machine with an NVIDIA GPU: the kernels against the reference, the golden models, and the engine's tests on the GPU. Two minutes.
test-cuda: all
	@LN_TEST_DEVICE=cuda LN_SAMPLE=1 tools/run_tests.sh $(BUILD) -j 1 -L '^cuda$$'
	@LN_TEST_DEVICE=cuda LN_TEST_GPU=capability=80 tools/run_tests.sh $(BUILD) -j 1 -R '^test_cuda_training$$'
# Golden models, adapters, requests, prefixes, KV files, classes and the server on the MLX device (docs/mlx.md), and its own tests: every node, memory,
# bits, and what is said without MLX; fetches MLX from PyPI. Five minutes.
test-mlx:
	@tools/mlx_wheel $(BUILD) || { echo "SKIP: no MLX from PyPI: the MLX device is NOT tested"; exit 0; }; \
	    $(MAKE) --no-print-directory all && tools/run_tests.sh $(BUILD) -j 1 -R '^test_mlx_(device|wheel)$$' && LN_TEST_DEVICE=mlx LN_SAMPLE=1 tools/run_tests.sh $(BUILD) -j 1 \
	    -R '^test_(golden|golden_lora|kv_file|scheduler|evaluate|adapters|adapters_api|adapter_cli|sampler|dynamic_rope|long_rope|classify|forbid|prefix|requests_api|tiny|backends|threads|deferred|answers|protocol|ollama|lifecycle|server_lora|tool_server|hostile_bodies|large_bodies|page|paths|embeddings|rank|many|attacks)$$'
# The kernels under compute-sanitizer: accesses out of bounds, and races of shared memory. Some minutes.
check-cuda: all
	@for tool in memcheck racecheck; do for test in test_cuda_kernels test_cuda_attention test_cuda_sampler test_cuda_experts test_cuda_recur; do \
	    LN_QUICK=1 compute-sanitizer --tool $$tool $$([ $$tool = memcheck ] && echo --report-api-errors no) --error-exitcode 1 $(BUILD)/$$test || exit 1; done; done
	@[ "$$(nvidia-smi -L | wc -l)" -lt 2 ] || for how in words=1048576 words=0; do export LN_TEST_GPU=$$how; \
	    compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 $(BUILD)/linnet run models/tiny Hello --raw -n 4 --device cuda:0,1 && \
	    mpirun -n 2 --bind-to none -x LN_TEST_GPU compute-sanitizer --tool racecheck --error-exitcode 1 $(BUILD)/linnet run models/tiny Hello --raw -n 4 --device cuda || exit 1; done
# Tokens per second on the GPU and shares of its ceilings, measured in the same run, of models with random weights (python3 with torch and numpy).
bench-cuda: all
	@ninja -C $(BUILD) --quiet cuda_requests
	@bench/cuda.sh $(BUILD)

# Old defects put back one by one (tests/mutants): the test named after each must fail. About two minutes.
mutants: setup
	@tools/mutants $(BUILD)-mutants
# Only whether each still applies and compiles: seconds.
check-mutants:
	@tools/mutants --compile

lint:
	@tools/lint_layers . $(BUILD)
	@tools/lint_rules
	@tools/lint_words

# The unit tests under AddressSanitizer and UndefinedBehaviorSanitizer. Not with detect_stack_use_after_return: gcc 12 does not keep
# the alignment of vectors on that stack.
asan: setup
	@$(MAKE) --no-print-directory all BUILD=$(BUILD)-asan CMAKE_FLAGS='-DLN_SANITIZE=ON -DLN_SANITIZE_KERNELS=ON -DLN_OPTIMISE="-O1 -g"'
	@ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 LN_SANITIZED=1 \
	    tools/run_tests.sh $(BUILD)-asan
# For .ci/run, the tests of the tag asan: what reads input from outside. Not optimised, except for the kernels, which are not checked here: their own tests have guard
# pages around their operands, and make asan checks them. Both cut the processor time: 204 s with the tests, 353 s with checked kernels.
asan-sample: setup
	@mkdir -p $(BUILD)-asan
	@$(CONFIGURE) -B $(BUILD)-asan -DLN_SANITIZE=ON -DLN_SANITIZE_KERNELS=OFF -DLN_OPTIMISE="-O0 -g1" >$(BUILD)-asan/configure.log 2>&1 || { cat $(BUILD)-asan/configure.log; exit 1; }
	@ninja -C $(BUILD)-asan --quiet linnet_cmd tests_asan
	@ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 LN_SANITIZED=1 LN_QUICK=1 \
	    tools/run_tests.sh $(BUILD)-asan -L '^asan$$'

# What has threads under ThreadSanitizer, without suppressions: the tests of the tags tsan and tsan-long; tsan-sample, for .ci/run, those of tsan. Its runtime wants addresses
# that are not too random.
tsan: TSAN = tsan-long
tsan tsan-sample: setup
	@mkdir -p $(BUILD)-tsan
	@$(CONFIGURE) -B $(BUILD)-tsan -DLN_TSAN=ON -DLN_PLAIN_ONLY=ON -DLN_OPTIMISE="-O1 -g1" >$(BUILD)-tsan/configure.log 2>&1 || { cat $(BUILD)-tsan/configure.log; exit 1; }
	@ninja -C $(BUILD)-tsan --quiet tests_tsan $(addprefix tests_,$(TSAN))
	@$(if $(TSAN),,LN_SAMPLE=1 )TSAN_OPTIONS=halt_on_error=1 LN_TEST_TIMEOUT=$${LN_TEST_TIMEOUT:-3600} $$(setarch -R true 2>/dev/null && echo setarch -R) \
	    tools/run_tests.sh $(BUILD)-tsan -L '^tsan$(if $(TSAN),(-long)?)$$'

# The fuzzers (fuzz/), each with a twin whose allocations fail. They need clang and the static libraries of jansson, PCRE2 and utf8proc; the
# binaries in $(BUILD)-fuzz run on other machines too: fuzz/run.sh DIR SECONDS.
SECONDS ?= 60
fuzz:
	@mkdir -p $(BUILD)-fuzz
	@CC=clang $(CONFIGURE) -B $(BUILD)-fuzz -DLN_FUZZ=ON >$(BUILD)-fuzz/configure.log 2>&1 || { cat $(BUILD)-fuzz/configure.log; exit 1; }
	@ninja -C $(BUILD)-fuzz --quiet

fuzz-run: fuzz
	@fuzz/run.sh $(BUILD)-fuzz $(SECONDS)

# How many of a parser's lines its corpus reaches; under 90 % is an error.
fuzz-coverage:
	@mkdir -p $(BUILD)-coverage
	@CC=clang $(CONFIGURE) -B $(BUILD)-coverage -DLN_FUZZ=ON -DLN_FUZZ_COVERAGE=ON >$(BUILD)-coverage/configure.log 2>&1 || \
	    { cat $(BUILD)-coverage/configure.log; exit 1; }
	@ninja -C $(BUILD)-coverage --quiet
	@fuzz/coverage.sh $(BUILD)-coverage

# Needs PyPI; the results are in git, so only a change of tools/golden.py needs this.
golden: setup
	@[ -x $(VENV)/bin/python ] || python3 -m venv $(VENV) || { echo "linnet: python3 with venv is needed (Debian: python3-venv)" >&2; exit 1; }
	@$(VENV)/bin/python -m pip install -q -r tools/requirements.txt
	@$(VENV)/bin/python tools/golden.py tests/golden
	@$(VENV)/bin/python tools/golden_quantised.py tests/golden/quantised
	@$(VENV)/bin/python tools/golden_official.py tests/golden/official
	@$(VENV)/bin/python -m pip install -q -r tools/requirements_families.txt
	@$(VENV)/bin/python tools/golden_families.py tests/golden/families
	@$(VENV)/bin/python tools/family_defaults.py tests/model/family_defaults.jsonl
	@$(VENV)/bin/python tools/golden_adapted.py tests/golden/families

# A model of each option of every family and of every two options, made by transformers, and its logits, keys and greedy tokens; adapters and
# gradients of peft for those of one option. Needs PyPI. An hour on two cores; FAMILIES="mistral phi3" takes these alone.
check-families: all
	@[ -x $(VENV)/bin/python ] || python3 -m venv $(VENV) || { echo "linnet: python3 with venv is needed (Debian: python3-venv)" >&2; exit 1; }
	@$(VENV)/bin/python -m pip install -q -r tools/requirements_families.txt
	@$(VENV)/bin/python tools/golden_families.py --resume --sweep $(BUILD)/families $(addprefix --only ,$(FAMILIES))
	@$(VENV)/bin/python tools/golden_families.py --resume --pairs $(BUILD)/pairs $(addprefix --only ,$(FAMILIES))
	@$(VENV)/bin/python tools/golden_adapted.py $(BUILD)/families
	@for t in test_golden test_families test_families_lora; do LN_GOLDEN=$(BUILD)/families $(BUILD)/$$t || exit 1; done
	@for t in test_golden test_families; do LN_GOLDEN=$(BUILD)/pairs $(BUILD)/$$t || exit 1; done

# Without debugging information, which is ten times the rest; STRIP= keeps it.
STRIP ?= --strip
install: all
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) $(STRIP)

clean:
	rm -rf $(BUILD) $(BUILD)-abi $(BUILD)-archs $(BUILD)-asan $(BUILD)-tsan $(BUILD)-amx $(BUILD)-neon $(BUILD)-fuzz $(BUILD)-coverage $(BUILD)-compilers

# The wheel for pip, in build/wheel: compiled by zig for glibc 2.28, with the libraries linked in.
wheel:
	@tools/make_wheel $(BUILD)/wheel

# An archive with a static command, and a container image of it, in build/static; MACHINE=aarch64 with BUILD=build-aarch64: for that processor, by zig.
static:
	@tools/make_static $(BUILD)/static $(MACHINE)
image:
	@tools/make_image $(BUILD)/static

# Debian packages of the last commit, in build/deb.
deb:
	@tools/make_deb $(BUILD)/deb

# All of these, a list of their contents and checksums, in build/release: make release VERSION=0.2.0; TWICE=--twice builds twice and compares.
release:
	@tools/make_release $(TWICE) "$(VERSION)" $(BUILD)

# Whether programs that were compiled for a release work with this library: make check-abi BASE=liblinnet-0.2.0.abi (a file of that release).
check-abi:
	@tools/check_abi $(BUILD)-abi $(BASE)

# The wheel in each Python, the static command next to busybox alone, the image in a container, the Debian packages and the wheel in a bare Debian 12 and 13.
check-packages:
	@tools/make_wheel $(BUILD)/wheel && tests/packages/wheel.sh $(CURDIR) $(BUILD)/wheel/linnet-*.whl || [ $$? = 77 ]
	@tools/make_static $(BUILD)/static && tests/packages/static.sh $(BUILD)/static/*.tar.xz || [ $$? = 77 ]
	@command -v qemu-aarch64 >/dev/null || { echo "SKIP: no qemu-aarch64 (Debian: apt-get install qemu-user qemu-user-static): no static command for aarch64"; exit 0; }; \
	    tools/make_static $(BUILD)/static-aarch64 aarch64 && tests/packages/static.sh $(BUILD)/static-aarch64/*.tar.xz || [ $$? = 77 ]
	@command -v buildah >/dev/null || { echo "SKIP: no buildah: the container image is NOT tried"; exit 0; }; \
	    tools/make_image $(BUILD)/static && tests/packages/image.sh $(BUILD)/static/*-image.tar || [ $$? = 77 ]
	@for debian in "bookworm $(DEBIAN)-12" "trixie $(DEBIAN)-13"; do WHEEL=$$(echo $(BUILD)/wheel/linnet-*.whl) tools/check_packages $$debian --cuda || exit 1; done

# The documentation as a site in build/docs/html, by Sphinx from PyPI. Half a minute.
docs: all
	@tools/make_docs $(BUILD) $(BUILD)/docs
# Every command of every page, on the bundled model; then the site. Two minutes. PAGES="docs/gguf.md" takes these alone.
check-docs: all
	@tools/check_docs $(BUILD) $(PAGES)
	@[ -n "$(PAGES)" ] || tools/make_docs $(BUILD) $(BUILD)/docs

# Speed next to this machine's ceilings; make bench MODEL=./model BENCH_FLAGS="--depth 0,4096 --streams 1,8"
MODEL ?= tiny
bench: setup
	@$(MAKE) --no-print-directory all
	@ninja -C $(BUILD) --quiet ceiling
	$(BUILD)/ceiling >$(BUILD)/ceiling.json
	$(BUILD)/linnet bench $(MODEL) --ceiling $(BUILD)/ceiling.json $(BENCH_FLAGS)

help:
	@echo "make             build/linnet (CMake and Ninja behind it)"
	@echo "make setup       installs what the build needs from Debian; does nothing when it is there"
	@echo "make demo        set-up, build, and a story from the bundled model"
	@echo "make demo-serve  set-up, build, and the server's page with the bundled model"
	@echo "make test        set-up, build, all tests"
	@echo "make quick       unit tests, one golden model a family, a sample of kernels: under a minute"
	@echo "make check-long  the tests, same bits on a model of real size, threads, AMX's model, NEON, mutants"
	@echo "make check-python the Python module: leaks, lm-eval and llm"
	@echo "make check-templates  random template programs, against python3-jinja2"
	@echo "make check-amx   the AMX ISA level on a model of its tile instructions (AVX-512 with VNNI)"
	@echo "make check-families  options of every family and pairs of them on tiny models, against transformers from PyPI"
	@echo "make check-mlx   mlx-lm from PyPI gives linnet's tokens, keys and classes on tiny models"
	@echo "make check-gguf  real GGUF files give the logits and tokens of transformers on the dequantised weights"
	@echo "make check-gguf-types  GGUF files of each architecture give the same in each quantised type as dequantised"
	@echo "make check-training  a model from scratch next to PyTorch, preferences of the bundled model"
	@echo "make check-page  the server's page in Chromium, and pictures of it"
	@echo "make check-openapi  schemathesis finds no fault with /openapi.json, promtool none with /metrics"
	@echo "make check-macos the sources compile and link for macOS (docs/macos.md)"
	@echo "make check-neon  kernel and golden tests for aarch64, under qemu"
	@echo "make check-archs  the GPU's kernels compile for all compute capabilities"
	@echo "make test-cuda   kernels, golden models and the engine on an NVIDIA GPU; make check-cuda: under compute-sanitizer"
	@echo "make docs        the documentation as a site, in $(BUILD)/docs/html; make check-docs: every command of every page"
	@echo "make bench-cuda  tokens per second on the GPU, and shares of its ceilings"
	@echo "make check-compilers  no warning of any gcc or clang that is here; musl's headers, -flto, -static"
	@echo "make check-debian  make demo and make test in a bare Debian 12 and 13 (root, debootstrap)"
	@echo "make mutants     puts old defects back; the test named after each must fail"
	@echo "make lint        which module may use which, sizes, functions that are not used here, words"
	@echo "make asan        the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make tsan        the tests that use threads under ThreadSanitizer"
	@echo "make bench       tok/s of MODEL (tiny) and shares of this machine's ceilings; BENCH_FLAGS=..."
	@echo "make fuzz        the fuzzers; make fuzz-run SECONDS=600 runs them, make fuzz-coverage measures their corpus; with clang"
	@echo "make golden      makes tests/golden anew with transformers, in a virtual environment"
	@echo "make install     PREFIX=/usr/local DESTDIR= STRIP=--strip (STRIP= keeps debugging information)"
	@echo "make wheel       the wheel for pip, in build/wheel"
	@echo "make static      a static command for every Linux, in build/static; make image: a container image of it"
	@echo "make deb         Debian packages of the last commit, in build/deb"
	@echo "make release VERSION=N  all of these with checksums and SPDX list, in build/release"
	@echo "make check-abi BASE=liblinnet-N.abi  whether programs that were compiled for release N work with this library"
	@echo "make check-packages  installs, tries and removes each of them"
	@echo "make clean"
