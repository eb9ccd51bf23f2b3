package grpcserver

import (
	"strings"

	"google.golang.org/protobuf/proto"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// checkAttribution refuses a request on behalf of another project's run or evaluation, whose budget it would spend.
func checkAttribution(m proto.Message) error {
	path := ""
	if streamed, ok := m.(*modelv1.StreamGenerateRequest); ok {
		m, path = streamed.GetRequest(), "request."
	}
	attributed, ok := m.(interface {
		GetAttribution() *effectv1.Attribution
	})
	if !ok || attributed.GetAttribution() == nil {
		return nil
	}
	var name string
	switch m := m.(type) {
	case interface{ GetParent() string }:
		name = m.GetParent()
	case interface{ GetSandbox() string }:
		name = m.GetSandbox()
	}
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 2 {
		return nil // The handler refuses the name.
	}
	project := parts[0] + "/" + parts[1] + "/"
	for _, of := range []struct{ field, name, collection string }{
		{"eval", attributed.GetAttribution().GetEval(), "evals/"},
		{"run", attributed.GetAttribution().GetRun(), "runs/"},
	} {
		if of.name != "" && !strings.HasPrefix(of.name, project+of.collection) {
			return rpcerr.InvalidField(path+"attribution."+of.field, "%q is not of the form %s%s{id}, of the project that the call is in", of.name, project, of.collection)
		}
	}
	return nil
}
