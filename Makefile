# Everything a person or a CI runs. `make demo` and `make test` need Python 3.11+ with venv, and make; nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# Set to a folder that `make wheelhouse` filled, installs read that folder and nothing else: no index, no pip.conf.
WHEELHOUSE ?=
OFFLINE = $(if $(WHEELHOUSE),PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS='$(abspath $(WHEELHOUSE))')
NO_WHEELS = no wheel of ours in $(WHEELHOUSE); run make wheelhouse where there is internet, with this Python on this platform
HAVE = $(if $(WHEELHOUSE),ls '$(abspath $(WHEELHOUSE))'/watchkeeper-*.whl > /dev/null 2>&1 || { echo '$(NO_WHEELS)' >&2; exit 1; },true)
FROM = $(if $(WHEELHOUSE),--no-index --find-links '$(abspath $(WHEELHOUSE))')

# Where `make test-kubernetes` keeps the kube-apiserver that it builds.
SLURM24 ?= $(HOME)/.cache/watchkeeper/slurm24
KUBE ?= $(HOME)/.cache/watchkeeper-kube

.PHONY: install wheelhouse demo serve check test test-install test-proof test-replay test-slurm test-slurm24 test-orders test-browser-matrix test-alerts test-kubernetes bench wrap picture score ablation score-logs score-reliability test-samples test-logs test-failover test-faults test-mutations sbom audit fuzz clean score-training test-training

$(STAMP): pyproject.toml constraints.txt
	@$(HAVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(OFFLINE) $(BIN)/python -m pip install --quiet --disable-pip-version-check $(FROM) -c constraints.txt -e '.[dev]'
	touch $(STAMP)

install: $(STAMP)

# Every pinned wheel for this Python and this platform, and our own, built from them alone.
wheelhouse: WHEELS = $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w wheelhouse
wheelhouse:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	rm -rf wheelhouse build
	$(WHEELS) -r constraints.txt
	PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS='$(CURDIR)/wheelhouse' \
	  $(WHEELS) --no-index --find-links '$(CURDIR)/wheelhouse' .

demo: $(STAMP)
	$(BIN)/watchkeeper demo $(if $(PORT),--port $(PORT))

serve: $(STAMP)
	$(BIN)/watchkeeper serve $(if $(PORT),--port $(PORT))

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/bandit -q -r -ll backend detectors frontend

test: check
	$(BIN)/python -m tests.services.install
	rm -f .tests-ended
	$(BIN)/python -m pytest -n 2 --dist loadgroup
	@test -f .tests-ended || { echo "The tests did not come to their end: a test ended their process."; exit 1; }

# Slow, run by hand: wheelhouse, install with networking cut, the wheel in a clean environment elsewhere.
test-install: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/install

# Slow, run by hand: kill -9 at every named point between a kernel line and the outcome of a drain.
test-proof: $(STAMP)
	$(BIN)/python -m pytest -m "slow or proof" tests/proof

# Slow, run by hand: byte equality of 20 simulated clusters, 200 kills and ten of SIGKILL.
test-replay: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/backend/replay

# How well the detectors do on simulated clusters that no test uses; SCORE='--seeds 20 --hours 24' for more of them.
score: $(STAMP)
	$(BIN)/python -m benchmarks.score $(SCORE)

# What each detector adds: recall and false incidents without it, on other simulated clusters. ABLATION="--seeds 8"
ablation: $(STAMP)
	$(BIN)/python -m benchmarks.ablation $(ABLATION)

# How well logs of jobs are named, on logs the rules were not made from.
score-logs: $(STAMP)
	$(BIN)/python -m tests.detectors.joblog.score
	$(BIN)/python -m tests.detectors.joblog.score_fresh
	$(BIN)/python -m tests.detectors.joblog.score_dressed
	$(BIN)/python -m tests.detectors.kernel.score

# Slow, run by hand: two processes on one PostgreSQL, the one that watches ended 20 times under load.
test-failover: $(STAMP)
	$(BIN)/python -m pytest -m slow -s tests/trust/test_failover.py

# What a release is made of, as CycloneDX; and whether any of it has a known weakness (needs the advisory service).
sbom: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(FROM) cyclonedx-bom
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o sbom.json $(BIN)/python

audit: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(FROM) pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

# Slow, run by hand: each row of tests/trust/asvs.toml breaks the code in a copy, and its test has to notice.
test-mutations: $(STAMP)
	$(BIN)/python -m tests.trust.mutations $(MUTATIONS)

# Slow, run by hand: 500 seeded faults on the real service and PostgreSQL; FAULTS=50 FAULTS_FIRST=7000 for others.
test-faults: $(STAMP)
	$(BIN)/python -m pytest -m slow -s tests/trust/test_faults.py

# Slow, run by hand: the whole OpenAPI with schemathesis, as one who may write; FUZZ="-n 500 --seed 7" for more.
fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(FROM) 'schemathesis>=4.0'
	$(BIN)/python -m tests.trust.fuzz $(FUZZ)

# How well the accounting does on made histories of 63 nodes and 14 days (2 minutes). RELIABILITY="--seeds 20"
score-reliability: $(STAMP)
	$(BIN)/python -m benchmarks.reliability $(RELIABILITY)

# How early and how falsely the training monitors speak, on real small runs (an hour). TRAINING="leads=20 healthy=10"
score-training: $(STAMP)
	$(BIN)/python -m tests.detectors.training.score $(TRAINING)

# Slow, run by hand (an hour): the bars of the training monitors on 20 seeds each and 300,000 healthy steps; with
# WATCHKEEPER_TEST_INSTALL=1 also files that TensorBoard and W&B write themselves.
test-training: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/detectors/training tests/backend/ingest/test_step_files_real.py

# Reads the public samples in ../shared/data, where they are.
test-samples: $(STAMP)
	$(BIN)/python -m pytest -m samples tests

# Slow, run by hand: a million random and mutated lines for each parser of logs, none raises, none takes long.
test-logs: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/detectors tests/backend/ingest/test_lineforms_million.py --ignore=tests/detectors/training

# Slow, run by hand (20 minutes): 100,000 random hostlists there and back and against scontrol, 10,000 interleavings.
test-slurm: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/backend/clients/test_hostlist_real.py tests/backend/ingest/test_slurm_interleavings.py

# Slow, run by hand, as root: Slurm 24.11 of Debian 13 in a folder (once 2 minutes, 600 MB), by commands and slurmrestd.
test-slurm24: $(STAMP)
	$(BIN)/python -m tests.services.slurm24_install '$(SLURM24)'
	WATCHKEEPER_SLURM24='$(SLURM24)' $(BIN)/python -m pytest -m slow tests/services/test_slurm24.py; \
	  said=$$?; $(BIN)/python -m tests.services.slurm24_install '$(SLURM24)' --leave; exit $$said

# Slow, run by hand (8 minutes): 200 kills of 50 orders on a real Slurm, 1,000 random fault histories against every guard.
test-orders: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/backend/test_orders_killed.py tests/backend/decide/test_histories.py

# Slow, run by hand (10 minutes): 100 kills of a storm of 6,000 incidents; none unannounced, at most 1 % told twice.
test-alerts: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/backend/notify

# Slow, run by hand: a real kube-apiserver, built once from Debian's own source (5 minutes, 1.5 GB), with etcd.
test-kubernetes: $(STAMP)
	$(BIN)/python -m tests.services.kube_build '$(KUBE)'
	WATCHKEEPER_KUBE='$(KUBE)' $(BIN)/python -m pytest -m slow tests/services/test_kube.py \
	  tests/backend/act/test_kubernetes.py tests/backend/ingest/test_kubernetes_real.py

# Slow, run by hand (10 minutes): every page at four widths in both themes against axe-core, and no page scrolls sideways.
test-browser-matrix: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/browser

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# The job wrapper as one file for compute nodes: any Python from 3.8 on runs it, with nothing installed.
wrap:
	$(PYTHON) -m backend.wrap.pyz watchkeeper-wrap.pyz

picture: $(STAMP)
	$(BIN)/python -m tests.proof.picture

clean:
	rm -rf $(VENV) build dist wheelhouse *.egg-info watchkeeper-demo
