package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// value is the value of a source for a field.
type value struct {
	given any
	found bool
	// cell is set if the value is a cell of CSV, where an empty text may mean an absent value.
	cell    bool
	resolve resolver
}

// absent reports whether the row has nothing for the field.
func (v value) absent() bool { return !v.found || v.given == nil }

// absentOrBlank is absent for fields whose text is parsed: an empty cell counts as absent.
func (v value) absentOrBlank() bool {
	text, isText := v.given.(string)
	return v.absent() || v.cell && isText && pytext.Trim(text) == ""
}

func setInput(s *Sample, v value) (err error) {
	switch given := v.given.(type) {
	case string:
		if given != "" {
			s.Text = given
			return nil
		}
	case []any:
		if len(given) > 0 {
			s.Messages, err = messages(given, v.resolve)
			return err
		}
	case nil:
	default:
		return fmt.Errorf("the input is a JSON %s: want text or a list of messages", orderedjson.Kind(given))
	}
	return errors.New("there is no input: give every row text or a list of messages, or map the field to another column")
}

func setTarget(s *Sample, v value) error {
	items, isList := v.given.([]any)
	if !isList {
		s.Targets = []string{""}
		if !v.absent() {
			s.Targets[0] = pytext.Str(v.given)
		}
		return nil
	}
	s.TargetIsList = true
	s.Targets = make([]string, len(items))
	for i, item := range items {
		s.Targets[i] = pytext.Str(item)
	}
	return nil
}

// setChoices reads a list, or text that is split at commas, or at white space if it has no comma. Empty choices are
// left out.
func setChoices(s *Sample, v value) error {
	var texts []string
	switch given := v.given.(type) {
	case nil:
		return nil
	case []any:
		for _, item := range given {
			texts = append(texts, pytext.Str(item))
		}
	case string:
		texts = strings.Split(given, ",")
		if len(texts) == 1 {
			texts = pytext.Fields(given)
		}
		for i, text := range texts {
			texts[i] = pytext.Trim(text)
		}
	default:
		texts = []string{pytext.Str(given)}
	}
	s.Choices = []string{}
	for _, text := range texts {
		if pytext.Trim(text) != "" {
			s.Choices = append(s.Choices, text)
		}
	}
	return nil
}

// setID distinguishes texts and integers. A number without fraction is an integer in any notation; true and false are 1
// and 0.
func setID(s *Sample, v value) error {
	switch given := v.given.(type) {
	case nil:
		return nil
	case string:
		s.ID = TextID(given)
		return nil
	case bool:
		s.ID = IntegerID(0)
		if given {
			s.ID = IntegerID(1)
		}
		return nil
	case json.Number:
		id, err := integerID(given)
		s.ID = id
		return err
	}
	return fmt.Errorf("the id is a JSON %s: want an integer or a text", orderedjson.Kind(v.given))
}

func integerID(literal json.Number) (ID, error) {
	if id, err := ParseID(literal.String(), true); err == nil {
		return id, nil
	}
	f, err := literal.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 { // beyond, a fraction is not told apart
		return ID{}, fmt.Errorf("the id %s is no integer: want an integer or a text", literal)
	}
	whole, _ := big.NewFloat(f).Int(nil)
	return ParseID(whole.String(), true)
}

// setSandbox reads a type, or a list of type and configuration, or the JSON text of such a list.
func setSandbox(s *Sample, v value) error {
	if v.absentOrBlank() {
		return nil
	}
	given := v.given
	if text, isText := given.(string); isText {
		if !strings.HasPrefix(pytext.Trim(text), "[") {
			s.Sandbox = &Sandbox{Type: text}
			return nil
		}
		var err error
		if given, err = orderedjson.Decode([]byte(text)); err != nil {
			return fmt.Errorf("the sandbox begins like a JSON list but is none: %w", err)
		}
	}
	pair, isList := given.([]any)
	if !isList || len(pair) != 2 {
		return errors.New("the sandbox is neither a type, such as docker, nor a list of type and configuration")
	}
	config, err := v.resolve(pytext.Str(pair[1]))
	s.Sandbox = &Sandbox{Type: pytext.Str(pair[0]), Config: &config}
	return err
}

func setFiles(s *Sample, v value) error {
	object, err := objectOf(v)
	if err != nil || object == nil {
		return err
	}
	s.Files = []File{}
	for path, member := range object.All() {
		text, isText := member.(string)
		if !isText {
			return fmt.Errorf("the content of file %q is a JSON %s: want text, a path or a data URI", path, orderedjson.Kind(member))
		}
		content, err := v.resolve(text)
		if err != nil {
			return fmt.Errorf("file %q: %w", path, err)
		}
		s.Files = append(s.Files, File{Path: path, Content: content})
	}
	return nil
}

func setSetup(s *Sample, v value) error {
	if v.absent() {
		return nil
	}
	content, err := v.resolve(pytext.Str(v.given))
	s.Setup = &content
	return err
}

// objectOf reads an object or the JSON text of one; nil if there is none.
func objectOf(v value) (*orderedjson.Object, error) {
	if v.absentOrBlank() {
		return nil, nil
	}
	given := v.given
	if text, isText := given.(string); isText {
		decoded, err := orderedjson.Decode([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("the text is no JSON object: %w", err)
		}
		if decoded == nil {
			return nil, nil // the text `null`, as spreadsheets write absent values
		}
		given = decoded
	}
	object, ok := given.(*orderedjson.Object)
	if !ok {
		return nil, fmt.Errorf("the value is a JSON %s: want an object, or the JSON text of one", orderedjson.Kind(given))
	}
	return object, nil
}
