package dialect

import (
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// CompactionData is the member of a part of data that takes the place of earlier messages, which a provider compacted.
// Only that provider reads it.
const CompactionData = "compaction_metadata"

// dataOf returns the object that a part of data has in a member, if the object's type is kind; else nil.
func dataOf(part *contentv1.Content, member, kind string) *orderedjson.Object {
	if part.GetData() == nil {
		return nil
	}
	data, err := orderedjson.DecodeObject([]byte(part.GetData().GetJson()))
	if err != nil {
		return nil
	}
	value, _ := data.Get(member)
	object, ok := value.(*orderedjson.Object)
	if !ok {
		return nil
	}
	if said, _ := object.Get("type"); said != kind {
		return nil
	}
	return object
}

// dataPart returns a part of data that has an object in a member, with kind as the object's type: what dataOf reads.
func dataPart(member, kind string, object *orderedjson.Object) *contentv1.Content {
	object.Set("type", kind)
	data := &orderedjson.Object{}
	data.Set(member, object)
	return &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: string(orderedjson.Append(nil, data))}}}
}

// KeptBlocks are the blocks of a vendor that are kept as data, since the canonical form has nothing for them: by their
// type.
type KeptBlocks map[string]Kept

// Kept is where the data of a block is: the member, and the type that it has there in place of its own.
type Kept struct{ Member, Type string }

// Data makes data of a block, which is JSON, without its members that are null; nil for blocks that are not kept.
func (k KeptBlocks) Data(kind string, raw []byte) *contentv1.Content {
	kept, known := k[kind]
	block, err := orderedjson.DecodeObject(raw)
	if !known || err != nil {
		return nil
	}
	set := &orderedjson.Object{}
	for name, value := range block.All() {
		if value != nil {
			set.Set(name, value)
		}
	}
	return dataPart(kept.Member, kept.Type, set)
}

// Block returns the block that data was made of, and its type; empty for data of others.
func (k KeptBlocks) Block(part *contentv1.Content) (kind string, block *orderedjson.Object) {
	for kind, kept := range k {
		if block := dataOf(part, kept.Member, kept.Type); block != nil {
			block.Set("type", kind)
			return kind, block
		}
	}
	return "", nil
}

// JSON is the block that data was made of as JSON; empty for data of others.
func (k KeptBlocks) JSON(part *contentv1.Content) string {
	if _, block := k.Block(part); block != nil {
		return string(orderedjson.Append(nil, block))
	}
	return ""
}

// IsCompaction reports whether a part takes the place of earlier messages. A format that leaves out data of others must
// refuse it, since the conversation would lose them.
func IsCompaction(part *contentv1.Content) bool {
	if part.GetData() == nil {
		return false
	}
	data, err := orderedjson.DecodeObject([]byte(part.GetData().GetJson()))
	if err != nil {
		return false
	}
	_, there := data.Get(CompactionData)
	return there
}

// OtherCompaction is what an [UnsupportedError] says of such a part of another provider.
const OtherCompaction = "a conversation that another provider compacted"
