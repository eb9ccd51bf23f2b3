package dataset

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// blockKind is a kind of content and what it needs.
type blockKind struct {
	name string
	// body is the member that holds the content itself.
	body string
	// data is set if the body is an object rather than text.
	data bool
	// file is set if the body may be the path of a file.
	file bool
	// texts are further members that must be there.
	texts []string
	// words are the values that a member may have.
	words map[string][]string
}

// blockKinds are in the order in which they are tried for a block without a type.
var blockKinds = []blockKind{
	{name: "text", body: "text"},
	{name: "reasoning", body: "reasoning"},
	{name: "image", body: "image", file: true, words: map[string][]string{"detail": {"auto", "low", "high", "original"}}},
	{name: "audio", body: "audio", file: true, texts: []string{"format"}, words: map[string][]string{"format": {"wav", "mp3"}}},
	{name: "video", body: "video", file: true, texts: []string{"format"}, words: map[string][]string{"format": {"mp4", "mpeg", "mov"}}},
	{name: "document", body: "document", file: true},
	{name: "data", body: "data", data: true},
	{
		name: "tool_use", body: "name", texts: []string{"tool_type", "id", "arguments", "result"},
		words: map[string][]string{"tool_type": {"web_search", "mcp_call", "code_execution"}},
	},
}

var errBlockType = errors.New("has an unknown type, or lacks the member of its type's name")

// contentBlock checks a block. A block without a type has the type of the member that it has.
func contentBlock(block *orderedjson.Object, ofUser bool, resolve resolver) (*orderedjson.Object, error) {
	given, typed := block.Get("type")
	i := slices.IndexFunc(blockKinds, func(kind blockKind) bool {
		_, has := block.Get(kind.body)
		return has && (given == kind.name || !typed)
	})
	if i < 0 {
		return nil, errBlockType
	}
	kind := blockKinds[i]
	if err := kind.check(block); err != nil {
		return nil, err
	}
	if !typed {
		block = with(block, "type", kind.name)
	}
	if !kind.file || !ofUser {
		return block, nil
	}
	path, _ := block.Get(kind.body)
	file, err := resolve(path.(string))
	if err != nil {
		return nil, fmt.Errorf("has a file that cannot be used: %w", err)
	}
	return with(block, kind.body, file.String()), nil
}

func (k blockKind) check(block *orderedjson.Object) error {
	body, _ := block.Get(k.body)
	if _, isObject := body.(*orderedjson.Object); k.data && !isObject {
		return fmt.Errorf("has %s of the wrong kind: want an object", k.body)
	}
	texts := k.texts
	if !k.data {
		texts = append([]string{k.body}, texts...)
	}
	for _, name := range texts {
		member, _ := block.Get(name)
		if _, isText := member.(string); !isText {
			return fmt.Errorf("of type %s needs %s as text", k.name, name)
		}
	}
	for name, words := range k.words {
		member, has := block.Get(name)
		if word, _ := member.(string); has && !slices.Contains(words, word) {
			return fmt.Errorf("has an unknown %s: want one of %s", name, strings.Join(words, ", "))
		}
	}
	return nil
}

// with returns a copy of an object with another value of a member.
func with(object *orderedjson.Object, name string, value any) *orderedjson.Object {
	changed := &orderedjson.Object{}
	for other, member := range object.All() {
		changed.Set(other, member)
	}
	changed.Set(name, value)
	return changed
}
