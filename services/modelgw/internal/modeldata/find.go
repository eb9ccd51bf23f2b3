package modeldata

import (
	"regexp"
	"strings"
)

// Find returns what is known of a model, by its full name as calls have it: `openai/gpt-4o`, `openai/azure/gpt-4o`,
// `together/meta-llama/Llama-3.3-70B-Instruct`, `fireworks/accounts/fireworks/models/glm-5p3`,
// `bedrock/us.anthropic.claude-opus-4-8`, or `gpt-4o` alone. Case, and `_` for `-`, do not matter. A snapshot of a
// known model, such as `gpt-4o-2099-01-01`, is that model; a name that merely resembles one is unknown.
func (d *Data) Find(model string) (*Model, bool) {
	for _, name := range d.canonical(normal(model)) {
		for _, form := range forms(name) {
			if m := d.byName[form]; m != nil {
				return m, true
			}
		}
	}
	return nil, false
}

// forms are the names by which a model may be known that is called by a name, the likeliest first.
func forms(name string) (all []string) {
	for _, form := range []string{name, dated(name), revision.ReplaceAllString(name, "")} {
		all = append(all, form, snapshot.ReplaceAllString(form, ""))
	}
	return all
}

var (
	// revision is the end of names at hosts, such as `-v1:0`.
	revision = regexp.MustCompile(`(?:-v\d+)?(?::\d+)?$`)
	// snapshot is the end of the name of a state of a model.
	snapshot = regexp.MustCompile(`-(?:latest|preview|\d{4}-\d\d-\d\d|\d{8}|\d{4}|\d{3})$`)
	// region precedes the name of a model in that of a profile of Bedrock, which spreads calls over regions.
	region = regexp.MustCompile(`^(?:us-gov|us|eu|apac|ap|au|jp|ca|sa|me|af|il|global)\.`)
)

// WithoutRegion returns the name of the model of a profile of Bedrock, and any other name as it is.
func WithoutRegion(name string) string { return region.ReplaceAllString(name, "") }

// dated is the name of a snapshot that a host writes behind an `@`.
func dated(name string) string { return strings.ReplaceAll(name, "@", "-") }

// services are between provider and model in names of models that another service hosts.
var services = map[string]bool{"azure": true, "bedrock": true, "vertex": true}

// organizations are the keys of what others call by another name.
var organizations = map[string]string{
	"moonshot": "moonshotai", "xai": "grok", "x-ai": "grok", "mistralai": "mistral", "deepseek-ai": "deepseek", "z-ai": "zai-org",
}

// makers are the organizations of models that hosts name without one, by how the names begin.
var makers = []struct{ begin, key string }{
	{"gpt-", "openai"},
	{"chatgpt-", "openai"},
	{"o1", "openai"},
	{"o3", "openai"},
	{"o4", "openai"},
	{"claude", "anthropic"},
	{"gemini", "google"},
	{"mistral", "mistral"},
	{"ministral", "mistral"},
	{"codestral", "mistral"},
	{"magistral", "mistral"},
	{"grok", "grok"},
	{"kimi", "moonshotai"},
	{"deepseek", "deepseek"},
	{"qwen", "qwen"},
	{"llama", "meta-llama"},
	{"meta-llama", "meta-llama"},
	{"muse", "meta"},
	{"nova", "amazon"},
}

// canonical returns the canonical names that a full name in its normal form may mean, the likeliest first.
func (d *Data) canonical(model string) []string {
	parts := strings.Split(model, "/")
	name := parts[len(parts)-1]
	var names []string
	if len(parts) > 1 {
		maker := parts[len(parts)-2]
		switch {
		case services[maker] && len(parts) > 2:
			maker = parts[len(parts)-3]
		case maker == "models" && strings.HasSuffix(model, "accounts/fireworks/models/"+name): // its own form
			maker = "fireworks"
		}
		if key, known := organizations[maker]; known {
			maker = key
		}
		names = append(names, maker+"/"+name)
		if d.keys[maker] {
			// A cloud's own form of a name has the maker once more.
			if bare, dotted := strings.CutPrefix(WithoutRegion(name), maker+"."); dotted {
				names = append(names, maker+"/"+bare)
			}
			return names
		}
	}
	// A host's own form: `us.anthropic.claude-opus-4-8`.
	if maker, bare, dotted := strings.Cut(WithoutRegion(name), "."); dotted {
		if key, known := organizations[maker]; known {
			maker = key
		}
		if d.keys[maker] {
			names = append(names, maker+"/"+bare)
		}
	}
	for _, m := range makers {
		if strings.HasPrefix(name, m.begin) {
			names = append(names, m.key+"/"+name)
		}
	}
	for _, form := range forms(name) {
		if all := d.makers[form]; len(all) == 1 {
			names = append(names, all[0]+"/"+form)
		}
	}
	return names
}
