//! Answers the call that reads the audit log.

use super::Answer;
use crate::audit_log::Auditor;
use crate::callers::CallingMember;
use crate::handles::handles;
use potluck_wire::control::{AuditPage, AuditRead};
use potluck_wire::error::Failure;

handles! {
    /// The handles for reading the audit log.
    pub struct AuditCalls {
        auditor: Auditor,
    }
}

impl Answer<AuditRead> for AuditCalls {
    async fn answer(self, call: AuditRead, _: CallingMember) -> Result<AuditPage, Failure> {
        self.auditor.read(call.since_wall_ms, call.after.unwrap_or(0)).await
    }
}
