package gemini

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/clienttool"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsoncase"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireRequest is a client's request on the wire.
type wireRequest struct {
	Contents   []content   `json:"contents"`
	System     *content    `json:"systemInstruction"`
	Tools      []wireTool  `json:"tools"`
	ToolConfig *toolConfig `json:"toolConfig"`
	Config     *wireConfig `json:"generationConfig"`
	// Cached is a conversation that the vendor stores: not expressible in the canonical form.
	Cached string `json:"cachedContent"`
}

// wireTool is a list of functions. Any other member is a tool that the server runs: one that no other vendor has is
// left out, so that the model has one offer less.
type wireTool map[string]json.RawMessage

const (
	memberFunctions = "functionDeclarations"
	memberComputer  = "computerUse"
)

type functionDeclaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	JSONSchema  json.RawMessage `json:"parametersJsonSchema"`
}

type toolConfig struct {
	Calling struct {
		Mode    string   `json:"mode"`
		Allowed []string `json:"allowedFunctionNames"`
	} `json:"functionCallingConfig"`
}

type wireConfig struct {
	Temperature      *float64        `json:"temperature"`
	TopP             *float64        `json:"topP"`
	TopK             *float64        `json:"topK"`
	MaxTokens        *int64          `json:"maxOutputTokens"`
	Stops            []string        `json:"stopSequences"`
	PresencePenalty  *float64        `json:"presencePenalty"`
	FrequencyPenalty *float64        `json:"frequencyPenalty"`
	Seed             *int64          `json:"seed"`
	Candidates       *int32          `json:"candidateCount"`
	Logprobs         *bool           `json:"responseLogprobs"`
	TopLogprobs      *int32          `json:"logprobs"`
	Type             string          `json:"responseMimeType"`
	Schema           json.RawMessage `json:"responseSchema"`
	JSONSchema       json.RawMessage `json:"responseJsonSchema"`
	Modalities       []string        `json:"responseModalities"`
	Thinking         *struct {
		Budget *int64 `json:"thinkingBudget"`
		Level  string `json:"thinkingLevel"`
	} `json:"thinkingConfig"`
}

// foreign are the members that hold JSON of others, in which no name is the format's, and depth is how deep the
// format's own members are nested.
var foreign = map[string]bool{
	"args": true, "response": true, "parameters": true, "parametersJsonSchema": true, "responseSchema": true, "responseJsonSchema": true,
}

const depth = 12

// camel is a client's document with the format's own members in camelCase.
func camel(doc []byte) []byte { return jsoncase.Camel(doc, depth, foreign) }

// ParseRequest implements dialect.Codec: the model and Stream are in the address. Members without a place in the
// canonical form, such as `safetySettings`, are ignored; what would change the answer and cannot be expressed is
// refused.
func (Codec) ParseRequest(body []byte) (*dialect.Request, error) {
	var w wireRequest
	if err := jsonread.Unmarshal(camel(body), &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	return w.request()
}

// request is the request in the canonical form.
func (w *wireRequest) request() (*dialect.Request, error) {
	switch {
	case w.Contents == nil:
		return nil, dialect.Required("contents")
	case len(w.Contents) == 0:
		return nil, dialect.Invalid("contents", "needs at least one turn")
	case w.Cached != "":
		return nil, dialect.NotSupported("cachedContent", "content that is stored at a vendor is not known here; send it")
	}
	r := &dialect.Request{}
	var err error
	if r.Messages, err = w.messages(); err != nil {
		return nil, err
	}
	if r.Tools, err = w.tools(); err != nil {
		return nil, err
	}
	if err = w.choose(r); err != nil {
		return nil, err
	}
	r.Config, err = w.config()
	return r, err
}

func (w *wireRequest) tools() ([]*toolv1.ToolInfo, error) {
	var tools []*toolv1.ToolInfo
	for i, tool := range w.Tools {
		param := fmt.Sprintf("tools[%d].%s", i, memberFunctions)
		var functions []functionDeclaration
		if raw := tool[memberFunctions]; raw != nil && jsonread.Unmarshal(raw, &functions) != nil {
			return nil, dialect.Invalid(param, "is no list of functions")
		}
		for j, f := range functions {
			if f.Name == "" {
				return nil, dialect.Required(fmt.Sprintf("%s[%d].name", param, j))
			}
			tools = append(tools, &toolv1.ToolInfo{
				Name: f.Name, Description: f.Description, ParametersJson: cmp.Or(schemaOf(f.JSONSchema, f.Parameters), dialect.NoParameters),
			})
		}
		if computer := tool[memberComputer]; jsonread.IsSet(computer) {
			tools = append(tools, clienttool.Gemini(computer)...)
		}
		offered, err := hosted.GeminiOffers(tool, fmt.Sprintf("tools[%d]", i))
		if err != nil {
			return nil, err
		}
		tools = append(tools, offered...)
	}
	return hosted.Distinct(tools), nil
}

// schemaOf is a JSON Schema: given as one, or in the vendor's own form, which has its types in capitals. It is empty
// if there is none.
func schemaOf(schema, openAPI json.RawMessage) string {
	if jsonread.IsSet(schema) {
		return string(schema)
	}
	if !jsonread.IsSet(openAPI) {
		return ""
	}
	return dialect.FromOpenAPI(string(openAPI))
}

// choose reads the choice among the tools. Where several may be called, the others are not on offer.
func (w *wireRequest) choose(r *dialect.Request) error {
	if w.ToolConfig == nil {
		return nil
	}
	const param = "toolConfig.functionCallingConfig"
	c := w.ToolConfig.Calling
	if c.Mode == modes.Any || c.Mode == modeValidated {
		switch len(c.Allowed) {
		case 0:
		case 1:
			r.Choice = dialect.Chosen(c.Allowed[0], r.Tools)
			return nil
		default:
			r.Tools = slices.DeleteFunc(r.Tools, func(t *toolv1.ToolInfo) bool { return !hosted.Is(t) && !slices.Contains(c.Allowed, t.GetName()) })
		}
		if c.Mode == modes.Any && !slices.ContainsFunc(r.Tools, func(t *toolv1.ToolInfo) bool { return !hosted.Is(t) }) {
			return dialect.NotSupported(param, "demands a call, but none of the functions that may be called is on offer")
		}
	}
	var known bool
	switch c.Mode {
	case "", "MODE_UNSPECIFIED":
		return nil
	case modeValidated:
		c.Mode = modes.Auto
	}
	if r.Choice, known = modes.Choice(c.Mode); !known {
		return dialect.Invalid(param+".mode", "%q is none of AUTO, ANY, NONE, VALIDATED", c.Mode)
	}
	return nil
}

// paramConfig precedes the names of the options.
const paramConfig = "generationConfig."

func (w *wireRequest) config() (*modelv1.GenerateConfig, error) {
	o := w.Config
	if o == nil {
		return &modelv1.GenerateConfig{}, nil
	}
	switch {
	case o.MaxTokens != nil && *o.MaxTokens < 1:
		return nil, dialect.Invalid(paramConfig+"maxOutputTokens", "is %d; give at least 1", *o.MaxTokens)
	case o.Candidates != nil && (*o.Candidates < 1 || *o.Candidates > maxChoices):
		return nil, dialect.Invalid(paramConfig+"candidateCount", "is %d; give 1 to %d", *o.Candidates, maxChoices)
	case o.TopK != nil && !(*o.TopK >= 0 && *o.TopK < 1<<31):
		return nil, dialect.Invalid(paramConfig+"topK", "is %v; give a whole number", *o.TopK)
	}
	c := &modelv1.GenerateConfig{
		Temperature: o.Temperature, TopP: o.TopP, MaxTokens: o.MaxTokens, PresencePenalty: o.PresencePenalty, FrequencyPenalty: o.FrequencyPenalty, Seed: o.Seed,
		NumChoices: o.Candidates, Logprobs: o.Logprobs, TopLogprobs: o.TopLogprobs, StopSeqs: dialect.Stops(o.Stops),
	}
	if o.TopK != nil {
		c.TopK = new(int32(*o.TopK))
	}
	if t := o.Thinking; t != nil {
		if t.Budget != nil && *t.Budget >= 0 { // -1 leaves it to the server.
			c.ReasoningTokens = t.Budget
		}
		if t.Level != "" {
			c.ReasoningEffort = new(strings.ToLower(t.Level))
		}
	}
	for _, modality := range o.Modalities {
		switch modality {
		case modalityText:
		case modalityImage:
			c.Modalities = &modelv1.ModalityList{Values: []*modelv1.Modality{{Type: "image"}}}
		default:
			return nil, dialect.NotSupported(paramConfig+"responseModalities", "%q is none of TEXT, IMAGE", modality)
		}
	}
	return c, o.format(c)
}

// format reads the form of the answer.
func (o *wireConfig) format(c *modelv1.GenerateConfig) error {
	schema := schemaOf(o.JSONSchema, o.Schema)
	switch {
	case o.Type != "" && o.Type != typeText && o.Type != typeJSON: // One of an enum is a bare word, and no JSON.
		return dialect.NotSupported(paramConfig+"responseMimeType", "%q is none of %s, %s", o.Type, typeText, typeJSON)
	case schema != "":
		c.ResponseSchema = &modelv1.ResponseSchema{Name: "response", JsonSchema: schema}
	case o.Type == typeJSON:
		c.ResponseSchema = dialect.AnyJSON()
	}
	return nil
}
