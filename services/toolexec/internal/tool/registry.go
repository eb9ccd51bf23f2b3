package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Registry has the kinds of tools. Register all kinds before it serves; after that it is safe for concurrent use.
type Registry struct {
	// Workers has the tools of workers; nil if there are none.
	Workers Source

	kinds   map[string]*registered
	schemas jsonschema.Cache
}

type registered struct {
	Kind
	options *jsonschema.Schema
	public  *toolv1.ToolDefinition // without options
	plain   *Offer                 // of a reference with only a name
}

// Register adds a kind of tool. It fails if the name is taken, if the tool cannot be made without options, or if its
// definition lacks something: a description of the tool or of a parameter, a rule for calls with an unknown outcome, a
// schema.
func (r *Registry) Register(kind Kind) error {
	if r.kinds[kind.Name] != nil {
		return fmt.Errorf("tool %s is registered twice", kind.Name)
	}
	options, err := jsonschema.Compile(kind.Options)
	if err != nil {
		return fmt.Errorf("tool %s: options: %w", kind.Name, err)
	}
	made, err := kind.New(json.RawMessage("{}"))
	if err != nil {
		return fmt.Errorf("tool %s: without options: %w", kind.Name, err)
	}
	plain := offered(made, kind)
	public := plain.Public
	if plain.parameters, err = declare(&r.schemas, public.GetInfo()); err != nil {
		return err
	}
	if public.GetOnUnknown() == toolv1.OnUnknown_ON_UNKNOWN_UNSPECIFIED {
		return fmt.Errorf("tool %s: on_unknown is missing", kind.Name)
	}
	if r.kinds == nil {
		r.kinds = map[string]*registered{}
	}
	r.kinds[kind.Name] = &registered{Kind: kind, options: options, public: public, plain: plain}
	return nil
}

// Definitions returns all definitions of a project by name, as they are without options. Do not modify them.
func (r *Registry) Definitions(project string) []*toolv1.ToolDefinition {
	var all []*toolv1.ToolDefinition
	for _, kind := range r.kinds {
		all = append(all, kind.public)
	}
	if r.Workers != nil {
		all = append(all, r.Workers.Definitions(project)...)
	}
	slices.SortFunc(all, func(a, b *toolv1.ToolDefinition) int {
		return strings.Compare(a.GetInfo().GetName(), b.GetInfo().GetName())
	})
	return all
}

// Offer returns the tools that a run of a project offers to its model, in the order of refs. It fails with
// TOOL_NOT_FOUND for a name that is neither registered nor served by a worker, and with INVALID_REQUEST for options
// that the tool does not take and for changes that make the definition invalid.
func (r *Registry) Offer(project string, refs []*toolv1.ToolRef) (Offers, error) {
	offers := make(Offers, len(refs))
	for i, ref := range refs {
		offer, err := r.offer(project, fmt.Sprintf("tools[%d]", i), ref)
		if err != nil {
			return nil, err
		}
		offers[i] = offer
	}
	return offers, nil
}

func (r *Registry) offer(project, path string, ref *toolv1.ToolRef) (*Offer, error) {
	if ref.GetMcpServer() != "" {
		return nil, rpcerr.Wrap(rpcerr.NotBuiltYet("tools of MCP servers"), "%s.mcp_server", path)
	}
	if ref.GetDefinition() != nil {
		return r.given(path, ref)
	}
	kind := r.kinds[ref.GetName()]
	if kind == nil {
		return r.workers(project, path, ref)
	}
	if unchanged(ref) {
		return kind.plain, nil
	}
	options, err := kind.checkOptions(ref.GetOptionsJson())
	if err != nil {
		return nil, rpcerr.InvalidField(path+".options_json", "tool %s: %v", kind.Name, err)
	}
	made, err := kind.New(options)
	if err != nil {
		return nil, rpcerr.InvalidField(path+".options_json", "tool %s: %v", kind.Name, err)
	}
	offer := offered(made, kind.Kind)
	offer.environment = ref.GetSandbox()
	return r.changed(path, ref, offer)
}

// unchanged reports whether a reference has only a name. Offers of such references are made once: making one parses its
// schema, which costs more than a small call.
func unchanged(ref *toolv1.ToolRef) bool {
	return proto.Equal(ref, &toolv1.ToolRef{Name: ref.GetName()})
}

// offered returns the offer of an unchanged tool; its parameters are not declared yet.
func offered(made Tool, kind Kind) *Offer {
	definition := made.Definition()
	public := proto.CloneOf(definition.Public)
	public.OptionsSchemaJson = string(kind.Options)
	return &Offer{Public: public, tool: made, view: definition.View, verbatim: definition.Verbatim}
}

// workers returns the offer of a tool that a worker serves now.
func (r *Registry) workers(project, path string, ref *toolv1.ToolRef) (*Offer, error) {
	if r.Workers != nil {
		if definition := r.Workers.Find(project, ref.GetName()); definition != nil {
			return r.served(path, ref, definition)
		}
	}
	known := r.Definitions(project)
	names := make([]string, len(known))
	for i, definition := range known {
		names[i] = definition.GetInfo().GetName()
	}
	err := rpcerr.ToolNotFound(ref.GetName(), names)
	if r.Workers != nil {
		err = err.Saying("a worker may serve it, and none that does is connected")
	}
	return nil, rpcerr.In(path, err)
}

// served returns the offer of a worker's tool, made of a definition.
func (r *Registry) served(path string, ref *toolv1.ToolRef, definition *toolv1.ToolDefinition) (*Offer, error) {
	switch {
	case r.Workers == nil:
		return nil, rpcerr.InvalidField(path+".definition.worker", "workers serve no tools here")
	case ref.GetOptionsJson() != "" && strings.TrimSpace(ref.GetOptionsJson()) != "{}":
		return nil, rpcerr.InvalidField(path+".options_json", "tool %s is served by a worker and takes no options", ref.GetName())
	}
	public := proto.CloneOf(definition)
	public.OptionsSchemaJson = workerOptions
	return r.changed(path, ref, &Offer{Public: public, tool: r.Workers.Tool(definition), environment: ref.GetSandbox()})
}

// given returns the offer of a tool whose definition the caller passes: a tool that the caller runs itself and that is
// in no registry, or a worker's tool as it was pinned.
func (r *Registry) given(path string, ref *toolv1.ToolRef) (*Offer, error) {
	public := proto.CloneOf(ref.GetDefinition())
	switch {
	case public.GetInfo() == nil:
		return nil, rpcerr.InvalidField(path+".definition.info", "is missing; a definition says what a model is told of the tool")
	case public.GetInfo().GetName() != ref.GetName():
		return nil, rpcerr.InvalidField(path+".definition.info.name", "%q is not the name %q of the reference", public.GetInfo().GetName(), ref.GetName())
	case public.GetWorker() != "" && public.GetCallerRuns():
		return nil, rpcerr.InvalidField(path+".definition", "a tool is run by the caller or by a worker, not by both")
	case public.GetWorker() != "":
		return r.served(path, ref, public)
	case !public.GetCallerRuns():
		return nil, rpcerr.InvalidField(path+".definition.caller_runs", "a definition may only be given for a tool that the caller or a worker runs; refer to a registered tool by its name instead")
	case ref.GetOptionsJson() != "":
		return nil, rpcerr.InvalidField(path+".options_json", "tool %s is run by the caller and takes no options here", ref.GetName())
	}
	return r.changed(path, ref, &Offer{Public: public})
}

// changed completes an offer with the changes of the reference.
func (r *Registry) changed(path string, ref *toolv1.ToolRef, offer *Offer) (*Offer, error) {
	if err := change(offer.Public, ref); err != nil {
		return nil, rpcerr.InvalidField(path, "%v", err)
	}
	declared, err := declare(&r.schemas, offer.Public.GetInfo())
	if err != nil {
		return nil, rpcerr.InvalidField(path, "%v", err)
	}
	offer.parameters = declared
	return offer, nil
}

func errBuiltIn(name string) error {
	return fmt.Errorf("the tool %s is built in; give the worker's another name", name)
}

// checkOptions returns the options as an object, if the kind takes them.
func (k *registered) checkOptions(options string) (json.RawMessage, error) {
	if options == "" {
		options = "{}"
	}
	document := json.RawMessage(options)
	violations, err := k.options.Check(document)
	if err != nil {
		return nil, err
	}
	if len(violations) == 0 {
		return document, nil
	}
	known := slices.Sorted(maps.Keys(k.options.Members()))
	var faults []string
	for _, v := range violations {
		fault := v.String()
		if v.At == "" && len(v.Unknown) > 0 && len(known) > 0 {
			fault += "; " + suggest.Question(v.Unknown[0], known) + "its options are " + strings.Join(known, ", ")
		}
		faults = append(faults, fault)
	}
	return nil, fmt.Errorf("options: %s", strings.Join(faults, "; "))
}
