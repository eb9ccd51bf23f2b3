package mockllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

// script determines a model's answers. It is immutable once it is parsed.
type script struct {
	// entries are tried in order; the first that fits a call gives its answer.
	entries []entry
	// bySample are the indices of the entries of each sample, general those of entries for any sample; both in order.
	bySample map[string][]int
	general  []int
	// list is consumed in order, one answer per call, by calls that match no entry.
	list []*answer
	// last is given where nothing else is left.
	last *answer
}

// document is the form of a script that is one object.
type document struct {
	Entries []json.RawMessage `json:"entries"`
	Outputs []json.RawMessage `json:"outputs"`
	Default json.RawMessage   `json:"default"`
}

// entry ties answers to calls. A condition that is not set fits any call.
type entry struct {
	// Sample, Epoch and Role are those of the call's attribution.
	Sample *scalar `json:"sample"`
	Epoch  *int32  `json:"epoch"`
	Role   *string `json:"role"`
	// Turn is the number of the model call within its run, from 1.
	Turn *int32 `json:"turn"`
	// MinTurn and MaxTurn bound it.
	MinTurn *int32 `json:"min_turn"`
	MaxTurn *int32 `json:"max_turn"`
	// Contains and Regexp must match the text that In names: `last_user` (default), `last` (the last message) or
	// `conversation`.
	Contains string `json:"contains"`
	Regexp   string `json:"regexp"`
	In       string `json:"in"`
	// Output is the answer; Outputs are answers by turn, the first for turn 1, and fit no turn beyond.
	Output  json.RawMessage   `json:"output"`
	Outputs []json.RawMessage `json:"outputs"`

	pattern *regexp.Regexp
	answers []*answer
	byTurn  bool
}

// scalar is a text that may be written as a number.
type scalar string

// UnmarshalJSON reads a text or a number.
func (s *scalar) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err == nil {
		*s = scalar(text)
		return nil
	}
	var number json.Number
	if err := json.Unmarshal(b, &number); err != nil {
		return errors.New("must be a text or a number")
	}
	*s = scalar(number.String())
	return nil
}

// parseScript parses a script: one object {entries, outputs, default}, a list of entries and outputs, or such a list
// with one item a line (JSON lines); in JSON or YAML. An item of a list is an entry if it has `output` or `outputs`,
// else an output of the ordered list.
func parseScript(text []byte) (*script, error) {
	documents, err := documentsOf(text)
	if err != nil {
		return nil, err
	}
	var whole document
	switch first := bytes.TrimLeft(documents[0], " \t\r\n"); {
	case len(documents) > 1 || isEntry(documents[0]):
		whole.addItems(documents)
	case len(first) > 0 && first[0] == '[':
		var items []json.RawMessage
		if err = json.Unmarshal(documents[0], &items); err == nil {
			whole.addItems(items)
		}
	default:
		err = decodeStrictly(documents[0], &whole)
	}
	if err != nil {
		return nil, err
	}
	return whole.compile()
}

// documentsOf returns the JSON documents of a text: one or more in JSON, or one of YAML.
func documentsOf(text []byte) ([]json.RawMessage, error) {
	var documents []json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var next json.RawMessage
		err := decoder.Decode(&next)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fromYAML(text)
		}
		if documents = append(documents, next); len(documents) > bound.ScriptAnswers {
			return nil, tooManyAnswers()
		}
	}
	if len(documents) == 0 {
		return nil, errors.New("the script is empty")
	}
	return documents, nil
}

func fromYAML(text []byte) ([]json.RawMessage, error) {
	node, err := yamlnode.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the script is neither JSON nor YAML that can be read: %w", err)
	}
	if node == nil {
		return nil, errors.New("the script is empty")
	}
	value, err := valueOf(node)
	if err != nil {
		return nil, err
	}
	return []json.RawMessage{orderedjson.Append(nil, value)}, nil
}

// valueOf converts a YAML node to JSON that keeps the order of members. yamlnode has bounded its expansion.
func valueOf(node *yaml.Node) (any, error) {
	switch node.Kind {
	case yaml.AliasNode:
		return valueOf(node.Alias)
	case yaml.SequenceNode:
		items := make([]any, len(node.Content))
		for i, child := range node.Content {
			item, err := valueOf(child)
			if err != nil {
				return nil, err
			}
			items[i] = item
		}
		return items, nil
	case yaml.MappingNode:
		object := &orderedjson.Object{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			member, err := valueOf(node.Content[i+1])
			if err != nil {
				return nil, err
			}
			object.Set(node.Content[i].Value, member)
		}
		return object, nil
	default:
		return scalarOf(node)
	}
}

func scalarOf(node *yaml.Node) (any, error) {
	switch node.Tag {
	case "!!null", "!!bool", "!!int", "!!float":
		var plain any
		if err := node.Decode(&plain); err != nil {
			return nil, fmt.Errorf("line %d: %w", node.Line, err)
		}
		document, err := json.Marshal(plain)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", node.Line, err)
		}
		return orderedjson.Decode(document)
	default:
		return node.Value, nil
	}
}

// isEntry reports whether an object is an entry, and neither an answer nor a whole script.
func isEntry(item json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(item, &members) != nil {
		return false
	}
	_, one := members["output"]
	_, many := members["outputs"]
	_, hasEntries := members["entries"]
	_, hasDefault := members["default"]
	return one || many && len(members) > 1 && !hasEntries && !hasDefault
}

func tooManyAnswers() error {
	return fmt.Errorf("the script has more than %d entries and answers", bound.ScriptAnswers)
}

func (d *document) addItems(items []json.RawMessage) {
	for _, item := range items {
		if isEntry(item) {
			d.Entries = append(d.Entries, item)
		} else {
			d.Outputs = append(d.Outputs, item)
		}
	}
}

func (d *document) compile() (*script, error) {
	s := &script{bySample: map[string][]int{}}
	left := bound.ScriptAnswers - len(d.Entries) - len(d.Outputs)
	if left < 0 {
		return nil, tooManyAnswers()
	}
	for i, raw := range d.Entries {
		var e entry
		if err := errors.Join(decodeStrictly(raw, &e), e.compile()); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		if left -= len(e.answers); left < 0 {
			return nil, tooManyAnswers()
		}
		s.entries = append(s.entries, e)
		if e.Sample != nil {
			s.bySample[string(*e.Sample)] = append(s.bySample[string(*e.Sample)], i)
		} else {
			s.general = append(s.general, i)
		}
	}
	var err error
	if s.list, err = parseAnswers(d.Outputs); err != nil {
		return nil, err
	}
	if d.Default != nil {
		if s.last, err = parseAnswer(d.Default); err != nil {
			return nil, fmt.Errorf("default: %w", err)
		}
	}
	return s, nil
}

func (e *entry) compile() (err error) {
	if e.Regexp != "" {
		if e.pattern, err = regexp.Compile(e.Regexp); err != nil {
			return err
		}
	}
	switch e.In {
	case "", inLastUser, inLast, inConversation:
	default:
		return fmt.Errorf("in must be %s, %s or %s", inLastUser, inLast, inConversation)
	}
	switch {
	case e.Output != nil && e.Outputs != nil:
		return errors.New("has both output and outputs")
	case e.Output != nil:
		one, err := parseAnswer(e.Output)
		e.answers = []*answer{one}
		return err
	default:
		e.byTurn = true
		e.answers, err = parseAnswers(e.Outputs)
		return err
	}
}
