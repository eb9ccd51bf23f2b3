package chat

import (
	"unicode/utf8"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// The JSON form has no place for who can read a seal of reasoning. Its `internal` is opaque to all but the code that
// speaks to one model's API, and every reader of the form returns it unchanged; so the sealer is a member of that, if
// it is an object or absent. With an `internal` of another kind the sealer is lost, and the seal goes to every model.

// sealerMember is the member's name, and maxSealer the bound of Reasoning.sealed_by in characters.
const (
	sealerMember = "evalfleet.sealed_by"
	maxSealer    = 512
)

// withSealer returns the `internal` of a part with its sealer, if it has one.
func withSealer(part *contentv1.Content) string {
	internal, sealer := part.GetInternalJson(), part.GetReasoning().GetSealedBy()
	if sealer == "" {
		return internal
	}
	object := &orderedjson.Object{}
	if internal != "" {
		var err error
		if object, err = orderedjson.DecodeObject([]byte(internal)); err != nil {
			return internal
		}
	}
	object.Set(sealerMember, sealer)
	return string(orderedjson.Append(nil, object))
}

// takeSealer moves the sealer of reasoning out of its `internal`.
func takeSealer(part *contentv1.Content) {
	object, err := orderedjson.DecodeObject([]byte(part.GetInternalJson()))
	if err != nil {
		return
	}
	value, _ := object.Get(sealerMember)
	sealer, _ := value.(string)
	if sealer == "" || utf8.RuneCountInString(sealer) > maxSealer {
		return
	}
	part.GetReasoning().SealedBy, part.InternalJson = sealer, ""
	if object.Delete(sealerMember); object.Len() > 0 {
		part.InternalJson = string(orderedjson.Append(nil, object))
	}
}
