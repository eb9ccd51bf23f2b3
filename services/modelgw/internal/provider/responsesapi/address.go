package responsesapi

import (
	"errors"
	"net/http"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// unknownModel are the codes for a model that OpenAI, or a deployment that Azure, does not know.
var unknownModel = []string{"model_not_found", "DeploymentNotFound"}

// LacksAddress reports whether a server does not know an address below the API, or knows it as that of a stored answer,
// which can only be read. A member of the request that names what the server does not know, such as a model or an item
// of the conversation, is another matter.
func LacksAddress(e *provider.Error) bool {
	said, ok := errors.AsType[*dialect.Error](e)
	return e.Status == http.StatusMethodNotAllowed ||
		e.Status == http.StatusNotFound && !(ok && (said.Param != "" || slices.Contains(unknownModel, said.Code)))
}
