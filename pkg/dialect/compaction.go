package dialect

import (
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// CompactionData is the member of a part of data that takes the place of earlier messages, which a provider compacted.
// Only that provider reads it.
const CompactionData = "compaction_metadata"

// DataOf returns the object that a part of data has in a member, if the object's type is kind; else nil.
func DataOf(part *contentv1.Content, member, kind string) *orderedjson.Object {
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
