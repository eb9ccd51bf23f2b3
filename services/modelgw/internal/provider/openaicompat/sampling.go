package openaicompat

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// bestOf is the option that has a server choose among several answers.
const bestOf = "best_of"

// sampling are the options of a configuration that the service takes beside those of chat completions, as members.
func (m *model) sampling(c *modelv1.GenerateConfig) (members []dialect.Member) {
	if m.responses != nil {
		return nil
	}
	for _, option := range []struct {
		name  string
		value *int32
	}{{bestOf, c.BestOf}, {"top_k", c.TopK}} {
		if option.value != nil && slices.Contains(m.service.Sampling, option.name) {
			members = append(members, dialect.Member{Name: option.name, JSON: strconv.Itoa(int(*option.value))})
		}
	}
	return members
}

// refuses reports whether a failure says that the server does not know one of the options.
func refuses(err error, asked []dialect.Member) bool {
	failure, ok := provider.As(err)
	if !ok || failure.Status != http.StatusBadRequest && failure.Status != http.StatusUnprocessableEntity {
		return false
	}
	return slices.ContainsFunc(asked, func(option dialect.Member) bool { return strings.Contains(failure.Message, option.Name) })
}

// refusedSampling is the warning of an answer without the options.
func refusedSampling(asked []dialect.Member) string {
	var names []string
	for _, option := range asked {
		names = append(names, option.Name)
	}
	return strings.Join(names, " and ") + " had no effect: the server refuses such an option, and was asked without"
}
