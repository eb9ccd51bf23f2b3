package hosted

import (
	"encoding/json"
	"strings"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// GeminiOffers reads the tools of an entry of Gemini's member tools, at a place, that Google runs and others have too.
// Its members are in camelCase.
func GeminiOffers(entry map[string]json.RawMessage, place string) (tools []*toolv1.ToolInfo, err error) {
	for _, member := range []string{"googleSearch", "googleSearchRetrieval"} {
		raw := entry[member]
		if !jsonread.IsSet(raw) {
			continue
		}
		tool, err := geminiSearch(Offer{Member: place + "." + member, Type: member}, raw)
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool)
		break // The two are one.
	}
	if jsonread.IsSet(entry["codeExecution"]) {
		tools = append(tools, interpreter(Offer{Member: place + ".codeExecution", Type: "codeExecution"}, "google", &orderedjson.Object{}))
	}
	return tools, nil
}

func geminiSearch(offer Offer, raw json.RawMessage) (*toolv1.ToolInfo, error) {
	var w struct {
		Blocked []string        `json:"excludeDomains"`
		Range   json.RawMessage `json:"timeRangeFilter"`
	}
	if err := read(raw, offer.Member, &w); err != nil {
		return nil, err
	}
	offer.restrict(BlockedDomains, "excludeDomains", w.Blocked != nil)
	offer.restrict(TimeRange, "timeRangeFilter", jsonread.IsSet(w.Range))
	own := &orderedjson.Object{}
	if object, err := orderedjson.DecodeObject(raw); err == nil && !strings.HasSuffix(offer.Type, "Retrieval") {
		own = object
	}
	return (&search{blocked: w.Blocked}).tool(offer, vendorGemini, own), nil
}
