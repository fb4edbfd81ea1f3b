"""Which incident a suspicion belongs to: pure, on facts; late victims fold into the incident of their job."""
