.PHONY: crash

crash: ## end trainings 200 times by signals and at system calls: every save loads, every end is the undisturbed one (6 to 15 minutes, needs strace)
	$(GO) test ./cmd/tidemark/crash -run TestCrash -count 1 -v -timeout 60m -args -kills 200
