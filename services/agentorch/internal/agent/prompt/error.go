package prompt

import "github.com/evalfleet/evalfleet/pkg/rpcerr"

func errRequired(name string) error {
	return rpcerr.InvalidField("params_json/template", "%s needs the parameter template", name)
}
