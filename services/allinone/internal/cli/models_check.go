package cli

import (
	"context"
	"fmt"
	"strconv"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// checkAccounts shows what the vendors say of accounts, and of models if any are named. It fails if a check does.
func (s *session) checkAccounts(ctx context.Context, provider string, models []string) error {
	if len(models) == 0 {
		models = []string{""} // All accounts.
	}
	var rows [][]string
	failed, found := 0, 0
	for _, model := range models {
		answer, err := s.models.CheckAccounts(ctx, &modelv1.CheckAccountsRequest{Model: model, Provider: provider})
		if err != nil {
			return err
		}
		for _, check := range answer.GetChecks() {
			found++
			if check.GetFailed() {
				failed++
			}
			if s.app.json {
				if err := s.app.emit(check); err != nil {
					return err
				}
				continue
			}
			for i, step := range check.GetSteps() {
				account, key := check.GetProvider()+"/"+check.GetAccount(), keyNumber(check.GetKey())
				if i > 0 {
					account, key = "", ""
				}
				rows = append(rows, []string{account, key, step.GetName(), checkWord(step.GetResult()), step.GetDetail()})
			}
		}
	}
	if !s.app.json && len(rows) > 0 {
		s.app.table([]string{"account", "key", "question", "", "what was found"}, rows)
	}
	switch {
	case found == 0:
		return statusError{code: exitFailed, message: "no account is configured; evalfleet models shows what each needs"}
	case failed > 0:
		return statusError{code: exitFailed, message: fmt.Sprintf("%d of %d credentials cannot be used", failed, found)}
	}
	return nil
}

// keyNumber is a credential as its account has it: its own, or one of its keys.
func keyNumber(n int32) string {
	if n == 0 {
		return "own"
	}
	return strconv.Itoa(int(n))
}

func checkWord(result modelv1.AccountCheckResult) string {
	switch result {
	case modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_PROVEN:
		return "ok"
	case modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_FAILED:
		return "FAILED"
	default:
		return "not proven"
	}
}
