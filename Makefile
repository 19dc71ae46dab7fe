# Every table and figure that ships: `make paper` makes them all, in order, and says how long each took
# (on two cores: 28 to 39 minutes, and 12 to 18 for sweep-predictor, which trains 19 predictors).
# Each step is one command and can be made alone (`make pretrained`); what is done already is not done again.

MARA ?= mara
RUNS ?= runs
SWEEPS = main load predictor_table stress diagnostics components reward costs noise pools predictor_allocator \
    predictor

PAPER = quick pretrained baselines predictors calibration $(SWEEPS:%=sweep-%) report docs
KEPT = $(addprefix $(RUNS)/,quick pretrained baselines sweep-stress sweep-costs sweep-pools sweep-noise \
    sweep-predictor_allocator sweep-predictor)
RULES = fifo,edf,llf,srpt,lara,lara_fm,laira,planner

.PHONY: paper $(PAPER)

paper:
	@all=$$(date +%s); for step in $(PAPER); do \
	    started=$$(date +%s); \
	    $(MAKE) --no-print-directory $$step || exit $$?; \
	    echo "paper: $$step took $$(( $$(date +%s) - started )) s"; \
	done; echo "paper: everything took $$(( $$(date +%s) - all )) s"

quick:  # README: a whole run, trained on the spot
	$(MARA) run --preset quick --out $(RUNS)/quick

pretrained:  # docs/results.md: what ships against everything else, at four loads
	$(MARA) evaluate --pretrained --out $(RUNS)/pretrained

baselines:  # docs/baselines.md: methods that are not trained
	$(MARA) evaluate --preset standard --set curves.bank=standard --set predictor.trained=standard \
	    --methods $(RULES) --out $(RUNS)/baselines

predictors:  # README, docs/predictor.md: how good the forecasts are
	@mkdir -p $(RUNS)
	$(MARA) predictor evaluate --pretrained --json > $(RUNS)/predictors.json.part
	mv $(RUNS)/predictors.json.part $(RUNS)/predictors.json
	cp $(RUNS)/predictors.json docs/results/

calibration:  # docs/baselines.md: how tight deadlines and targets are
	@mkdir -p $(RUNS)
	$(MARA) calibrate --json > $(RUNS)/calibration.json.part
	mv $(RUNS)/calibration.json.part $(RUNS)/calibration.json
	cp $(RUNS)/calibration.json docs/results/

$(SWEEPS:%=sweep-%): sweep-%:  # docs/experiments.md has a list
	$(MARA) sweep tune_configs/$*.yaml --stages $(RUNS)/stages --out $(RUNS)/sweep-$*

report:  # the report of what ships, with the sweeps that are shown in it
	$(MARA) report $(RUNS)/pretrained --sweep $(RUNS)/sweep-costs --sweep $(RUNS)/sweep-stress

docs:  # tables of README.md and docs/, from the results that are kept in docs/results
	$(MARA) docs $(KEPT)
