// Package shell is what the commands share: exit statuses, standard streams,
// arguments, and the files of an output folder.
package shell

// Exit statuses.
const (
	ExitDone        = 0
	ExitError       = 1 // an error, said in one line on standard error
	ExitNoDevice    = 2 // the device asked for is not there
	ExitDoesNotHold = 3 // done, but a check does not hold
	ExitInterrupted = 130
	InterruptedText = "interrupted; what was done so far is kept"
)
