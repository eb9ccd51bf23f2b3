package run

import "fmt"

// Fields of a specification, as refusals and warnings name them.
const (
	FieldConfig = "spec.config"
	FieldModel  = "spec.model"
	// FieldSteps begins the fields of all steps.
	FieldSteps = "spec.steps["
)

// FieldOfRole is the field of a model that has a role.
func FieldOfRole(role string) string { return fmt.Sprintf("spec.model_roles[%q]", role) }

// FieldOfStep is the field of a step.
func FieldOfStep(index int) string { return fmt.Sprintf(FieldSteps+"%d]", index) }
