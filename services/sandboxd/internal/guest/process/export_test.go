package process

// DoWithoutBirths makes the table start processes as it does where the kernel knows no births. It comes before the first Start.
func (t *Table) DoWithoutBirths() { t.plain = true }

// KnowsBirths tells how processes were started. It is asked on the thread that starts them.
func (t *Table) KnowsBirths() bool { return !t.plain }
