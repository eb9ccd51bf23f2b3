package responsesapi

import (
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// names are the tools that are sent under other names: models of the Responses API take a tool named python for one of
// the server's own, and call it otherwise.
var names = map[string]string{"python": "python_exec"}

// Renamed returns the request with tools as the models know them, and a function that undoes it in the output. It
// copies what it changes.
func Renamed(r *provider.Request) (sent *provider.Request, restore func(*modelv1.ModelOutput)) {
	sent, restoreNames := provider.Renamed(r, names)
	sent, restorePlan := planned(sent)
	return sent, func(output *modelv1.ModelOutput) {
		restorePlan(output)
		restoreNames(output)
	}
}
