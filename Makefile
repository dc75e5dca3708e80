# Tenon: every job by one command. See README.md.
SHELL := /bin/bash
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: help setup build test test-distributed bench-distributed test-python test-array-api fuzz-python test-pytorch test-forecast wheel bench-python bench-forecast test-install package test-package test-aarch64 test-clang test-distribution test-abi test-swiftshader test-viewer docs demo benchmarks bench cuda-programs bench-cuda check-cuda stress fuzz asan tsan debug clean

help:
	@echo "make test-install  build other projects against an installed Tenon, and with Tenon inside"
	@echo "make demo    set up, build, replay the shipped traces over every policy, and train a model"
	@echo "make test    set up, build, and run every test"
	@echo "make package  Debian packages in build-package/packages, looked over by lintian"
	@echo "make test-package  install those packages into a bare Debian 12 tree and use them there (needs root)"
	@echo "make test-aarch64  cross-compile the allocators for 64-bit ARM, run their tests under qemu"
	@echo "make test-clang  build all by clang without a warning and test it, memory and lab also over libc++"
	@echo "make test-distribution SUITE=trixie  make test in a bare tree of Debian 13 or Ubuntu 24.04 (noble); needs root"
	@echo "make test-abi  the C interface and the exported functions against those that abi/ records"
	@echo "make docs  the reference of the public headers and of Python, in build/docs; fails where a name has no comment"
	@echo "make test-distributed  training on several processes, over Open MPI and over MPICH (JOBS: compilers at a time)"
	@echo "make bench-distributed KILLS=200  its weights, memory and traffic by rank; runs that are killed; 1,000 recordings in one report"
	@echo "make test-swiftshader  the tests of Vulkan once more, on SwiftShader (fetches Debian's chromium)"
	@echo "make test-viewer  build the web viewer from its sources and test it in Chromium (needs Node)"
	@echo "make wheel   a wheel of the Python package in dist/ (PYTHON=python3.12: another interpreter; TENSOR=ON: with tensors)"
	@echo "make test-python  build that wheel, install it into a virtual environment, test it there"
	@echo "make test-array-api  the array-API standard's tests against it (clones them)"
	@echo "make fuzz-python SECONDS=60  random calls of its tensors (after make test-python)"
	@echo "make test-pytorch  tenon_torch against PyTorch's CUDA builds and viewers, without a GPU (fetches 1.5 GB)"
	@echo "make test-forecast  forecasts of PyTorch programs, with PyTorch from PyPI (fetches 1 GB)"
	@echo "make bench-forecast  forecasts beside what a GPU recorded (fetches the same)"
	@echo "make bench-python  the Python package's figures (after make test-python)"
	@echo "make benchmarks  build the programs in build/bench that make bench and stress run"
	@echo "make bench   set up, build, and run the benchmarks; their records are in build/results"
	@echo "make bench-cuda  every figure that needs an NVIDIA GPU; skips what is not here"
	@echo "make check-cuda  first contact with an NVIDIA GPU: each step passed, failed or skipped"
	@echo "make stress  millions of schedules, 10^9 operations (half an hour), also under ASan and TSan"
	@echo "make fuzz SECONDS=60  libFuzzer with sanitizers, so long for each parser and policy (needs clang)"
	@echo "make build   set up and build; the command is build/tenon"
	@echo "make debug | asan | tsan   build and test that preset"

setup:
	@scripts/setup.sh

build: setup
	@cmake --preset release -B $(BUILD) >$(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@rm -f $(BUILD).configure.log
	@cmake --build $(BUILD) -j $(JOBS)

test: build
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure -LE swiftshader

test-swiftshader:
	@scripts/setup.sh <(echo chromium)
	@$(MAKE) build
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure -L swiftshader --no-tests=error

test-distributed: setup
	@scripts/setup.sh packages-mpi.txt
	@JOBS=$(JOBS) scripts/test_distributed.sh

bench-distributed: test-distributed
	@scripts/bench_distributed.py $(KILLS)
	@scripts/bench_fleet.py

test-install: build
	@tests/install/test_install.sh $(BUILD) --from-source
	@tests/install/blocks.py
	@tests/install/pages.sh $(BUILD) docs/embed.md docs/c.md docs/cpu_pytorch.md docs/extend/backend.md

package: setup
	@scripts/setup.sh packages-package.txt
	@scripts/package.sh

test-package: package
	@tests/install/test_package.sh build-package/packages

test-aarch64: setup
	@scripts/setup.sh packages-aarch64.txt
	@scripts/test_aarch64.sh

SUITE ?= trixie
test-distribution:
	@scripts/setup.sh <(echo debootstrap)
	@scripts/test_distribution.sh $(SUITE)

test-clang: setup
	@scripts/setup.sh packages-clang.txt
	@scripts/test_clang.sh

test-abi: build
	@scripts/setup.sh packages-abi.txt
	@scripts/test_abi.sh $(BUILD)

docs:
	@scripts/setup.sh packages-docs.txt
	@scripts/docs.py $(BUILD)/docs

test-viewer: build
	@scripts/test_viewer.sh $(BUILD)

wheel: setup
	@scripts/setup.sh packages-python.txt
	@scripts/wheel.sh

test-python: setup
	@scripts/setup.sh packages-python.txt
	@scripts/test_python.sh

test-array-api: setup
	@scripts/setup.sh packages-python.txt
	@scripts/test_array_api.sh

fuzz-python:
	@scripts/fuzz_python.sh $(SECONDS)

test-pytorch: build
	@scripts/test_pytorch.sh $(BUILD)

test-forecast: setup
	@scripts/setup.sh packages-python.txt
	@scripts/test_forecast.sh

bench-forecast: setup
	@scripts/setup.sh packages-python.txt
	@scripts/bench_forecast.sh

bench-python:
	@scripts/bench_python.sh

demo: build
	@$(BUILD)/tenon replay data/traces/*.csv.zst --policy all --find-capacity --json-file $(BUILD)/demo.json
	@echo "the same figures as JSON: $(BUILD)/demo.json"
	@$(BUILD)/tenon train fashion-mnist --model mlp --epochs 1

benchmarks: build
	@cmake --build $(BUILD) -j $(JOBS) --target benchmarks

bench:
	@scripts/setup.sh packages-bench.txt || echo "going on without the peers that are not here"
	@$(MAKE) build
	@python=$$(scripts/pytorch_environment.sh) && cmake -B $(BUILD) -DTENON_PYTORCH=$$($$python -c \
	  'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])') >/dev/null \
	  || echo "going on with Debian's libtorch, or none: PyTorch of PyPI is not to be had"
	@$(MAKE) benchmarks
	@bench/run.py $(BUILD)

cuda-programs: build
	@cmake --build $(BUILD) -j $(JOBS) --target bench_cuda_stress bench_cuda_hot_pair bench_cuda_driver_costs

bench-cuda: cuda-programs
	@bench/cuda/run.sh $(BUILD)

check-cuda: cuda-programs
	@bench/cuda/check.sh $(BUILD)

stress: benchmarks
	@scripts/stress.sh $(BUILD)

SECONDS ?= 60
fuzz: setup
	@scripts/setup.sh packages-fuzz.txt
	@scripts/fuzz.sh $(SECONDS)

debug asan tsan: setup
	@cmake --preset $@
	@cmake --build --preset $@ -j $(JOBS)
	@ctest --preset $@ -j $(JOBS)

clean:
	@rm -rf build build-*
